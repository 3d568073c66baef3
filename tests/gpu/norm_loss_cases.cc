// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/trial.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

template <class S>
Trial trial_of(Of<NormForward<S>>, const TrialSize& size) {
  TrialMaker<NormForward<S>> make(size);
  const std::size_t rows = size.rows();
  const std::size_t width = size.width;
  const auto x = make.in(numbers<S>(rows * width, 1, 2), rows * width);
  const auto weight = make.in(numbers<S>(width, 2), width);
  const auto bias = make.in(numbers<S>(width, 3), width);
  const auto y = make.template out<S>(rows * width);
  const auto mean = make.template out<float>(rows);
  const auto rstd = make.template out<float>(rows);
  return make.done(warp_row_grid(rows), [=](const Places& at) {
    return typename NormForward<S>::Args{at(x),    at(weight), at(bias), at(y),
                                         at(mean), at(rstd),   rows,     width};
  });
}

template <class S, class P>
Trial trial_of(Of<NormBackward<S, P>>, const TrialSize& size) {
  TrialMaker<NormBackward<S, P>> make(size);
  const std::size_t rows = size.rows();
  const std::size_t width = size.width;
  const auto x = make.in(numbers<S>(rows * width, 1, 2), rows * width);
  const auto weight = make.in(numbers<S>(width, 2), width);
  const auto mean = make.in(numbers<float>(rows, 3, 0.1F), rows);
  const auto rstd = make.in(std::vector<float>{0.5F, 0.625F, 0.4375F}, rows);
  const auto dy = make.in(numbers<P>(rows * width, 4), rows * width);
  const auto dx = make.in_out(numbers<S>(rows * width, 5), rows * width);
  return make.done(warp_row_grid(rows), [=](const Places& at) {
    return typename NormBackward<S, P>::Args{at(x),  at(weight), at(mean), at(rstd), at(dy),
                                             at(dx), rows,       width,    0};
  });
}

template <class S, class P>
Trial trial_of(Of<NormPartials<S, P>>, const TrialSize& size) {
  using Kernel = NormPartials<S, P>;
  TrialMaker<Kernel> make(size);
  const std::size_t rows = size.rows();
  const std::size_t width = size.width;
  const auto x = make.in(numbers<S>(rows * width, 1, 2), rows * width);
  const auto mean = make.in(numbers<float>(rows, 2, 0.1F), rows);
  const auto rstd = make.in(std::vector<float>{0.5F, 0.625F, 0.4375F}, rows);
  const auto dy = make.in(numbers<P>(rows * width, 3), rows * width);
  const auto weights = make.template out<float>(row_blocks(rows) * width);
  const auto biases = make.template out<float>(row_blocks(rows) * width);
  return make.done(Kernel::grid(rows, width), [=](const Places& at) {
    return typename Kernel::Args{at(x),       at(mean),   at(rstd), at(dy),
                                 at(weights), at(biases), rows,     width};
  });
}

template <class S>
Trial trial_of(Of<CrossEntropy<S>>, const TrialSize& size) {
  using Kernel = CrossEntropy<S>;
  TrialMaker<Kernel> make(size);
  const std::size_t vocabulary = size.vocabulary;
  const std::size_t stride = (vocabulary + 63) / 64 * 64;
  // As many rows as the model's head takes at a time.
  const std::size_t rows = size.timed ? (std::size_t{1} << 26U) / vocabulary : size.rows();
  const std::size_t time = size.time;
  const auto logits = make.in_out(numbers<float>(rows * stride, 1, 4), rows * stride);
  std::vector<std::int32_t> targets(rows + rows / time + 1);
  for (std::size_t i = 0; i < targets.size(); ++i)
    targets[i] = static_cast<std::int32_t>(i * 7919 % vocabulary);
  const auto target = make.in(targets);
  const auto scale = make.in(std::vector<float>{0.25F});
  const auto losses = make.template out<float>(rows);
  // Logits are read twice, gradients written once.
  make.moves(static_cast<double>(rows * vocabulary) * (8 + sizeof(S)));
  return make.done(Kernel::grid(rows), [=](const Places& at) {
    return typename Kernel::Args{at(logits), at(target), at(losses), time + 1, time,      0,
                                 rows,       vocabulary, vocabulary, stride,   at(scale), 1};
  });
}

Trial trial_of(Of<SumLosses>, const TrialSize& size) {
  TrialMaker<SumLosses> make(size);
  const std::size_t rows = size.timed ? 1335 : 4096 + size.rows();  // a piece and a tail
  const auto losses = make.in(numbers<float>(rows, 1, 5), rows);
  const auto sum = make.in_out(std::vector<double>{0.125}, 1);
  return make.done(SumLosses::grid(), [=](const Places& at) {
    return SumLosses::Args{at(losses), at(sum), rows};
  });
}

}  // namespace

std::vector<KernelCase> norm_and_loss_cases() {
  return {MUSTER_NORM_KERNELS(MUSTER_GPU_CHECK_CASE) MUSTER_LOSS_KERNELS(MUSTER_GPU_CHECK_CASE)};
}

}  // namespace muster::runtime::cuda::gpu_check
