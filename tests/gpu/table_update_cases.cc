// SPDX-License-Identifier: Apache-2.0
//
// Embedding tables, the optimizer's kernels and those of buckets.
#include "tests/gpu/trial.h"
#include "worker_runtime/cuda/kernels/token_order.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

// (batch, time + 1); some tokens often, most of them seldom.
std::vector<std::int32_t> tokens_of(const TrialSize& size) {
  std::vector<std::int32_t> tokens(size.batch * (size.time + 1));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::uint32_t word = numerics::philox(3, i, 5).word[0];
    const std::size_t range = word % 4 == 0 ? 3 : size.vocabulary;
    tokens[i] = static_cast<std::int32_t>((word >> 2U) % range);
  }
  return tokens;
}

template <class S>
Trial trial_of(Of<Embed<S>>, const TrialSize& size) {
  TrialMaker<Embed<S>> make(size);
  const TrialSize s = size;
  const auto tokens = make.in(tokens_of(size));
  const auto wte = make.in(numbers<S>(s.vocabulary * s.width, 1), s.vocabulary * s.width);
  const auto wpe = make.in(numbers<S>(s.time * s.width, 2), s.time * s.width);
  const auto x = make.template out<S>(s.rows() * s.width);
  // A row of each table and one of the result, a place.
  make.moves(static_cast<double>(s.rows() * s.width * 3 * sizeof(S)));
  return make.done(row_grid(s.rows(), s.width), [=](const Places& at) {
    return typename Embed<S>::Args{at(tokens), at(wte), at(wpe), at(x),
                                   s.time + 1, s.batch, s.time,  s.width};
  });
}

template <class S>
Trial trial_of(Of<TokenGradient<S>>, const TrialSize& size) {
  using Kernel = TokenGradient<S>;
  TrialMaker<Kernel> make(size);
  const TrialSize s = size;
  const TokenOrder order = token_order(tokens_of(s), s.time + 1, s.batch, s.time, s.vocabulary);
  const auto distinct = make.in(order.distinct);
  const auto starts = make.in(order.starts);
  const auto places = make.in(order.places);
  const auto dx = make.in(numbers<S>(s.rows() * s.width, 1), s.rows() * s.width);
  const std::size_t table = s.vocabulary * s.width;
  const auto dwte = make.in_out(numbers<float>(table, 2), table);
  return make.done(Kernel::grid(s.rows(), s.width), [=](const Places& at) {
    return typename Kernel::Args{at(distinct), at(starts), at(places), at(dx), at(dwte), s.width};
  });
}

template <class S>
Trial trial_of(Of<PositionGradient<S>>, const TrialSize& size) {
  TrialMaker<PositionGradient<S>> make(size);
  const TrialSize s = size;
  const auto dx = make.in(numbers<S>(s.rows() * s.width, 1), s.rows() * s.width);
  const auto dwpe = make.in_out(numbers<float>(s.time * s.width, 2), s.time * s.width);
  return make.done(row_grid(s.time, s.width), [=](const Places& at) {
    return typename PositionGradient<S>::Args{at(dx), at(dwpe), s.batch, s.time, s.width};
  });
}

// ---------------------------------------------------------------- optimizer

// More than one norm block, and a tail.
std::size_t parameters_of(const TrialSize& size) {
  return size.timed ? 124'475'904 : 2 * numerics::kNormBlock + size.rows() * size.width % 1000;
}

// A number here and there is not finite. No NaN: its bits are the machine's own.
std::vector<float> spoiled_numbers(std::size_t count) {
  std::vector<float> values = numbers<float>(count, 1);
  values[values.size() / 2] = __builtin_inff();
  values[values.size() / 3] = -__builtin_inff();
  return values;
}

Trial trial_of(Of<CheckNorm>, const TrialSize& size) {
  TrialMaker<CheckNorm> make(size);
  const std::size_t count = parameters_of(size);
  const Grid grid = CheckNorm::grid(count);
  const auto gradients = make.in(numbers<float>(count, 1), count);
  const auto squares = make.out<double>(grid.x);
  const auto bad = make.out<std::uint64_t>(grid.x);
  return make.done(grid, [=](const Places& at) {
    return CheckNorm::Args{at(gradients), at(squares), at(bad), count, 3 * numerics::kNormBlock};
  });
}

Trial trial_of(Of<LowestIndex>, const TrialSize& size) {
  TrialMaker<LowestIndex> make(size);
  const std::size_t count = size.timed ? 7598 : 1000 + size.width;
  std::vector<std::uint64_t> indices(count, kNoIndex);
  indices[count / 2] = 77;
  indices[count - 1] = 78;
  const auto in = make.in(indices);
  const auto lowest = make.in_out(std::vector<std::uint64_t>{99}, 1);
  return make.done(LowestIndex::grid(), [=](const Places& at) {
    return LowestIndex::Args{at(in), at(lowest), count, 1};
  });
}

template <class S, bool kByChance>
Trial trial_of(Of<AdamW<S, kByChance>>, const TrialSize& size) {
  using Kernel = AdamW<S, kByChance>;
  TrialMaker<Kernel> make(size);
  const std::size_t count = parameters_of(size);
  UpdateState state;
  AdamWOptions options;
  options.weight_decay = 0.1;
  state.coefficients = numerics::adamw_coefficients(options, 3, 0.5);
  state.rounding_key = 12345;
  state.update = 3;
  const auto update = make.in(std::vector<UpdateState>{state});
  const auto gradients = make.in(numbers<float>(count, 1, 0.1F), count);
  const auto parameters = make.in_out(numbers<float>(count, 2, 0.02F), count);
  const auto first = make.in_out(numbers<float>(count, 3, 0.01F), count);
  std::vector<float> squares = numbers<float>(count, 4, 0.1F);
  for (float& x : squares)
    x = x * x;
  const auto second = make.in_out(squares, count);
  const auto copy = make.template out<S>(count);
  return make.done(element_grid(count), [=](const Places& at) {
    return typename Kernel::Args{
        at(update), at(gradients), at(parameters), at(first), at(second), at(copy), count, 64, 1};
  });
}

// ---------------------------------------------------------------- buckets

template <class W>
Trial trial_of(Of<PackBucket<W>>, const TrialSize& size) {
  TrialMaker<PackBucket<W>> make(size);
  const std::size_t count = size.timed ? std::size_t{8} << 20U : parameters_of(size);
  const Grid grid = element_grid(count);
  const auto gradients = make.in(spoiled_numbers(count), count);
  const auto wire = make.template out<W>(count);
  const auto bad = make.template out<std::uint64_t>(grid.x);
  return make.done(grid, [=](const Places& at) {
    return typename PackBucket<W>::Args{at(gradients), at(wire), at(bad), count, 4096, 1.0F};
  });
}

template <class W>
Trial trial_of(Of<ReduceSlices<W>>, const TrialSize& size) {
  TrialMaker<ReduceSlices<W>> make(size);
  const std::size_t count = size.timed ? std::size_t{8} << 20U : 1000 + size.width;
  const std::size_t stride = (count + 7) / 8 * 8;
  constexpr std::size_t kRanks = 3;
  const auto slices = make.in(numbers<W>(kRanks * stride, 1), kRanks * stride);
  const auto out = make.template out<W>(count);
  return make.done(element_grid(count), [=](const Places& at) {
    return typename ReduceSlices<W>::Args{at(slices), at(out), kRanks, stride, count};
  });
}

}  // namespace

std::vector<KernelCase> table_and_update_cases() {
  return {MUSTER_EMBEDDING_KERNELS(MUSTER_GPU_CHECK_CASE) MUSTER_OPTIMIZER_KERNELS(
      MUSTER_GPU_CHECK_CASE) MUSTER_BUCKET_KERNELS(MUSTER_GPU_CHECK_CASE)};
}

}  // namespace muster::runtime::cuda::gpu_check
