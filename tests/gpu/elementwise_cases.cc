// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/trial.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

template <class From, class To>
Trial trial_of(Of<Cast<From, To>>, const TrialSize& size) {
  TrialMaker<Cast<From, To>> make(size);
  const std::size_t count = size.rows() * size.width;
  const auto in = make.in(numbers<From>(count, 1, 3), count);
  const auto out = make.template out<To>(count);
  return make.done(element_grid(count), [=](const Places& at) {
    return typename Cast<From, To>::Args{at(in), at(out), count};
  });
}

Trial trial_of(Of<Add>, const TrialSize& size) {
  TrialMaker<Add> make(size);
  const std::size_t count = size.rows() * size.width;
  const auto in = make.in(numbers<float>(count, 1), count);
  const auto out = make.in_out(numbers<float>(count, 2), count);
  return make.done(element_grid(count), [=](const Places& at) {
    return Add::Args{at(in), at(out), count};
  });
}

template <class S, class P>
Trial trial_of(Of<AddBias<S, P>>, const TrialSize& size) {
  TrialMaker<AddBias<S, P>> make(size);
  const std::size_t rows = size.rows();
  const std::size_t width = size.width;
  const auto product = make.in(numbers<P>(rows * width, 1, 3), rows * width);
  const auto bias = make.in(numbers<S>(width, 2), width);
  const auto out = make.template out<S>(rows * width);
  return make.done(row_grid(rows, width), [=](const Places& at) {
    return typename AddBias<S, P>::Args{at(product), at(bias), at(out), rows, width};
  });
}

template <class S, class P>
Trial trial_of(Of<AddResidual<S, P>>, const TrialSize& size) {
  TrialMaker<AddResidual<S, P>> make(size);
  const std::size_t rows = size.rows();
  const std::size_t width = size.width;
  const auto product = make.in(numbers<P>(rows * width, 1, 3), rows * width);
  const auto bias = make.in(numbers<S>(width, 2), width);
  const auto residual = make.in(numbers<S>(rows * width, 3, 2), rows * width);
  const auto out = make.template out<S>(rows * width);
  return make.done(row_grid(rows, width), [=](const Places& at) {
    return
        typename AddResidual<S, P>::Args{at(product), at(bias), at(residual), at(out), rows, width};
  });
}

template <class S, class P>
Trial trial_of(Of<BiasGelu<S, P>>, const TrialSize& size) {
  TrialMaker<BiasGelu<S, P>> make(size);
  const std::size_t rows = size.rows();
  const std::size_t width = size.width;
  const auto product = make.in(numbers<P>(rows * width, 1, 3), rows * width);
  const auto bias = make.in(numbers<S>(width, 2), width);
  const auto pre = make.template out<S>(rows * width);
  const auto act = make.template out<S>(rows * width);
  return make.done(row_grid(rows, width), [=](const Places& at) {
    return typename BiasGelu<S, P>::Args{at(product), at(bias), at(pre), at(act), rows, width};
  });
}

template <class S>
Trial trial_of(Of<Gelu<S>>, const TrialSize& size) {
  TrialMaker<Gelu<S>> make(size);
  const std::size_t count = size.rows() * size.width;
  const auto pre = make.in(numbers<S>(count, 1, 3), count);
  const auto act = make.template out<S>(count);
  return make.done(element_grid(count), [=](const Places& at) {
    return typename Gelu<S>::Args{at(pre), at(act), count};
  });
}

template <class S, class P>
Trial trial_of(Of<GeluBackward<S, P>>, const TrialSize& size) {
  TrialMaker<GeluBackward<S, P>> make(size);
  const std::size_t count = size.rows() * size.width;
  const auto dact = make.in(numbers<P>(count, 1), count);
  const auto pre = make.in(numbers<S>(count, 2, 3), count);
  const auto dpre = make.template out<S>(count);
  return make.done(element_grid(count), [=](const Places& at) {
    return typename GeluBackward<S, P>::Args{at(dact), at(pre), at(dpre), count};
  });
}

template <class S>
Trial trial_of(Of<ColumnPartials<S>>, const TrialSize& size) {
  using Kernel = ColumnPartials<S>;
  TrialMaker<Kernel> make(size);
  const std::size_t rows = size.rows();
  const std::size_t width = size.width;
  const auto x = make.in(numbers<S>(rows * width, 1), rows * width);
  const auto partials = make.template out<float>(row_blocks(rows) * width);
  return make.done(Kernel::grid(rows, width), [=](const Places& at) {
    return typename Kernel::Args{at(x), at(partials), rows, width};
  });
}

Trial trial_of(Of<AddPartials>, const TrialSize& size) {
  TrialMaker<AddPartials> make(size);
  const std::size_t blocks = row_blocks(size.rows());
  const std::size_t width = size.width;
  const auto partials = make.in(numbers<float>(blocks * width, 1), blocks * width);
  const auto sums = make.in_out(numbers<float>(width, 2), width);
  return make.done(AddPartials::grid(width), [=](const Places& at) {
    return AddPartials::Args{at(partials), at(sums), blocks, width};
  });
}

}  // namespace

std::vector<KernelCase> elementwise_cases() {
  return {MUSTER_ELEMENTWISE_KERNELS(MUSTER_GPU_CHECK_CASE)};
}

}  // namespace muster::runtime::cuda::gpu_check
