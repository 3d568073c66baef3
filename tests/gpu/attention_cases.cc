// SPDX-License-Identifier: Apache-2.0
//
// Attention. On tensor cores sums have the hardware's order and 2^x is the device's own: results
// are compared within a few roundings to the format. The plain kernels have the host's bits.
#include "tests/gpu/trial.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

// Share of the largest number of an array.
template <class S>
inline constexpr double kClose = 0x1p-6;
template <>
inline constexpr double kClose<F16> = 0x1p-9;
inline constexpr double kCloseStatistics = 1e-4;  // FP32

// All `count` of them where the host computes with them, else a pattern.
template <class S>
std::vector<S> inputs_of(const TrialSize& s, std::size_t count, std::uint64_t seed) {
  std::vector<S> values = numbers<S>(count, seed);
  if (s.timed) return values;
  const std::size_t period = values.size();
  values.resize(count);
  for (std::size_t i = period; i < count; ++i)
    values[i] = values[i - period];
  return values;
}

// What a backward pass starts from.
template <class S>
struct AttentionInputs {
  AttentionInputs(const TrialSize& s, unsigned head_size)
      : size{static_cast<unsigned>(s.time), static_cast<unsigned>(s.heads), head_size},
        batch(static_cast<unsigned>(s.batch)),
        rows(s.rows() * s.heads),
        count(s.rows() * size.width()),
        qkv(inputs_of<S>(s, 3 * count, 1)),
        out(inputs_of<S>(s, count, 2)),
        d_out(inputs_of<S>(s, count, 3)) {}

  // The forward pass's, by the host.
  void compute() {
    lse.resize(rows);
    dots.resize(rows);
    const AttentionArgs<S> forward{qkv.data(), out.data(), lse.data(), size};
    run_host_kernel(KernelName<PlainAttention<S>>::kName, plain_attention_grid(size, batch),
                    &forward, sizeof(forward));
    const typename AttentionDots<S>::Args of_dots{out.data(), d_out.data(), dots.data(), size,
                                                  static_cast<unsigned>(rows)};
    run_host_kernel(KernelName<AttentionDots<S>>::kName, AttentionDots<S>::grid(size, batch),
                    &of_dots, sizeof(of_dots));
  }

  AttentionSize size;
  unsigned batch;
  std::size_t rows, count;
  std::vector<S> qkv, out, d_out;
  std::vector<float> lse{7.0F}, dots{0.1F};
};

// Multiplications and additions of one product over the keys up to the query's place.
double operations_of(const TrialSize& s, unsigned head_size) {
  const double time = static_cast<double>(s.time);
  return static_cast<double>(s.batch * s.heads) * time * (time + 1) * head_size;
}

template <class Kernel, class S>
Trial forward_trial(const TrialSize& s, unsigned head_size, bool tensor) {
  TrialMaker<Kernel> make(s);
  const AttentionInputs<S> inputs(s, head_size);
  const AttentionSize size = inputs.size;
  const auto qkv = make.in(inputs.qkv, 3 * inputs.count);
  const auto out = make.template out<S>(inputs.count, tensor ? kClose<S> : 0);
  const auto lse = make.template out<float>(inputs.rows, tensor ? kCloseStatistics : 0);
  make.multiplies(2 * operations_of(s, head_size));
  return make.done(
      tensor ? attention_grid(size, inputs.batch) : plain_attention_grid(size, inputs.batch),
      [=](const Places& at) {
        return AttentionArgs<S>{at(qkv), at(out), at(lse), size};
      });
}

template <class Kernel, class S>
Trial backward_trial(const TrialSize& s, unsigned head_size, bool tensor, double products) {
  TrialMaker<Kernel> make(s);
  AttentionInputs<S> inputs(s, head_size);
  if (!s.timed) inputs.compute();
  const AttentionSize size = inputs.size;
  const auto qkv = make.in(inputs.qkv, 3 * inputs.count);
  const auto d_out = make.in(inputs.d_out, inputs.count);
  const auto lse = make.in(inputs.lse, inputs.rows);
  const auto dots = make.in(inputs.dots, inputs.rows);
  // Each kernel writes its own part; zeroes elsewhere, so that the rest compares too.
  const auto d_qkv = make.in_out(std::vector<S>(64), 3 * inputs.count, tensor ? kClose<S> : 0);
  make.multiplies(products * operations_of(s, head_size));
  return make.done(
      tensor ? attention_grid(size, inputs.batch) : plain_attention_grid(size, inputs.batch),
      [=](const Places& at) {
        return AttentionBackwardArgs<S>{at(qkv), at(d_out), at(lse), at(dots), at(d_qkv), size};
      });
}

template <class S, unsigned kHead>
Trial trial_of(Of<Attention<S, kHead>>, const TrialSize& s) {
  return forward_trial<Attention<S, kHead>, S>(s, kHead, true);
}
template <class S, unsigned kHead>
Trial trial_of(Of<AttentionKeyGradients<S, kHead>>, const TrialSize& s) {
  return backward_trial<AttentionKeyGradients<S, kHead>, S>(s, kHead, true, 4);
}
template <class S, unsigned kHead>
Trial trial_of(Of<AttentionQueryGradient<S, kHead>>, const TrialSize& s) {
  return backward_trial<AttentionQueryGradient<S, kHead>, S>(s, kHead, true, 3);
}
template <class S>
Trial trial_of(Of<PlainAttention<S>>, const TrialSize& s) {
  return forward_trial<PlainAttention<S>, S>(s, s.plain_head, false);
}
template <class S>
Trial trial_of(Of<PlainKeyGradients<S>>, const TrialSize& s) {
  return backward_trial<PlainKeyGradients<S>, S>(s, s.plain_head, false, 4);
}
template <class S>
Trial trial_of(Of<PlainQueryGradient<S>>, const TrialSize& s) {
  return backward_trial<PlainQueryGradient<S>, S>(s, s.plain_head, false, 3);
}

template <class S>
Trial trial_of(Of<AttentionDots<S>>, const TrialSize& s) {
  using Kernel = AttentionDots<S>;
  TrialMaker<Kernel> make(s);
  const AttentionInputs<S> inputs(s, s.plain_head);
  const AttentionSize size = inputs.size;
  const unsigned rows = static_cast<unsigned>(inputs.rows);
  const auto out = make.in(inputs.out, inputs.count);
  const auto d_out = make.in(inputs.d_out, inputs.count);
  const auto dots = make.template out<float>(inputs.rows);
  return make.done(Kernel::grid(size, inputs.batch), [=](const Places& at) {
    return typename Kernel::Args{at(out), at(d_out), at(dots), size, rows};
  });
}

}  // namespace

std::vector<KernelCase> attention_cases() {
  return {MUSTER_ATTENTION_KERNELS(MUSTER_GPU_CHECK_CASE)};
}

}  // namespace muster::runtime::cuda::gpu_check
