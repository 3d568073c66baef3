// SPDX-License-Identifier: Apache-2.0
//
// Buckets: packing rounds as the CPU does and finds what is not finite before it rounds; the sum
// of slices has the bits of the CPU's all-reduce over as many ranks.
#include "worker_runtime/cuda/kernels/buckets.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/cuda/orders.h"
#include "tests/unit/cuda/shapes.h"
#include "tests/unit/numerics/random.h"
#include "worker_runtime/collectives/local.h"
#include "worker_runtime/collectives/ops.h"
#include "worker_runtime/cpu/kernels.h"

namespace muster::runtime::cuda {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
const std::size_t kCounts[] = {1, 7, 8, 255, 2048, 2049, 5001};

std::vector<std::size_t> counts() {
  std::vector<std::size_t> all(std::begin(kCounts), std::end(kCounts));
  for (std::uint64_t i = 0; i < 6; ++i)
    all.push_back(random_size(76, i, 40000));
  return all;
}

template <class W>
constexpr WireType kWire = WireType::kF32;
template <>
inline constexpr WireType kWire<Bf16> = WireType::kBf16;
template <>
inline constexpr WireType kWire<F16> = WireType::kF16;

template <class W>
struct Packed {
  std::vector<W> wire;
  std::uint64_t lowest;
};
template <class W>
Packed<W> pack(const float* gradients, std::size_t count, float factor, std::uint64_t first) {
  const Grid grid = element_grid(count);
  Packed<W> packed{std::vector<W>(count), 0};
  std::vector<std::uint64_t> bad(grid.x);
  std::vector<std::uint64_t> lowest(1);
  run_in_all_orders<PackBucket<W>>(
      grid, {gradients, packed.wire.data(), bad.data(), count, first, factor},
      {written(packed.wire), written(bad)});
  run_in_all_orders<LowestIndex>(LowestIndex::grid(), {bad.data(), lowest.data(), bad.size(), 0},
                                 {written(lowest)});
  packed.lowest = lowest[0];
  return packed;
}

// Large numbers, small ones, and the large ones' negatives: 16 bits show in which order FP32 adds.
std::vector<float> part_of_rank(std::size_t count, std::size_t rank) {
  if (rank % 3 == 1) return random_values<float>(count, 7 * count + rank, 1e-3F);
  std::vector<float> part = random_values<float>(count, 7 * count + rank / 3, 8e3F);
  for (float& x : part)
    x = rank % 3 == 0 ? x : -x;
  return part;
}

// What each rank holds after an all-reduce on the CPU.
std::vector<float> all_reduced(const std::vector<std::vector<float>>& parts, WireType wire) {
  LocalGroup group(static_cast<int>(parts.size()), 1);
  std::vector<std::vector<float>> data = parts;
  std::vector<int> fine(parts.size());
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      const auto member = group.member(static_cast<int>(rank));
      fine[rank] = all_reduce_sum(*member, data[rank], wire, 64, 0).ok() ? 1 : 0;
    });
  }
  for (std::thread& rank : ranks)
    rank.join();
  CHECK(std::count(fine.begin(), fine.end(), 1) == static_cast<std::ptrdiff_t>(parts.size()));
  CHECK(same_bits(data.front(), data.back()));
  return data.front();
}

}  // namespace

TEMPLATE_TEST_CASE("packing multiplies, rounds, and tells the first bad element", "", float, Bf16,
                   F16) {
  for (const std::size_t count : counts()) {
    for (const std::size_t shift : {0U, 1U}) {
      CAPTURE(count, shift);
      const auto gradients = random_values<float>(count + shift, count);
      std::vector<float> product(gradients.begin() + static_cast<std::ptrdiff_t>(shift),
                                 gradients.end());
      for (float& x : product)
        x = x * 0.37F;
      std::vector<TestType> want(count);
      kernels<TestType>(Isa::kPortable).narrow(product.data(), want.data(), count);
      Packed<TestType> got = pack<TestType>(gradients.data() + shift, count, 0.37F, 1000);
      CHECK(same_bits(got.wire, want));
      CHECK(got.lowest == kNoIndex);
      for (const float bad : {kNaN, kInfinity, -kInfinity}) {
        std::vector<float> broken = gradients;
        for (const std::size_t at : {count - 1, count / 2, std::size_t{0}}) {
          broken[shift + at] = bad;
          got = pack<TestType>(broken.data() + shift, count, 0.37F, 1000);
          CHECK(got.lowest == 1000 + at);
          CHECK_FALSE(std::isfinite(to_number(got.wire[at])));
        }
      }
    }
  }
}

TEST_CASE("only what FP32 cannot hold is bad") {
  auto gradients = random_values<float>(3000, 1);
  gradients[2999] = 1e38F;  // too large for 16 bits, and for FP32 only with the second factor
  CHECK(pack<F16>(gradients.data(), 3000, 1, 0).lowest == kNoIndex);
  CHECK(std::isinf(to_number(pack<F16>(gradients.data(), 3000, 1, 0).wire[2999])));
  CHECK(pack<F16>(gradients.data(), 3000, 10, 0).lowest == 2999);
  gradients[5] = kInfinity;  // infinity times zero is no number
  CHECK(pack<float>(gradients.data(), 3000, 0, 0).lowest == 5);
}

TEMPLATE_TEST_CASE("slices add up to the bits of the CPU's all-reduce", "", float, Bf16, F16) {
  for (const std::size_t ranks : {1U, 2U, 3U, 5U, 8U}) {
    for (const std::size_t count : counts()) {
      CAPTURE(ranks, count);
      const std::size_t stride = count % 2 == 0 ? count : count + 3;
      std::vector<std::vector<float>> parts;
      std::vector<TestType> slices(ranks * stride);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        parts.push_back(part_of_rank(count, rank));
        const Packed<TestType> packed = pack<TestType>(parts.back().data(), count, 1, 0);
        std::copy(packed.wire.begin(), packed.wire.end(),
                  slices.begin() + static_cast<std::ptrdiff_t>(rank * stride));
      }
      std::vector<TestType> sum(count);
      run_in_all_orders<ReduceSlices<TestType>>(
          element_grid(count), {slices.data(), sum.data(), ranks, stride, count}, {written(sum)});
      std::vector<float> unpacked(count);
      run_in_all_orders<Cast<TestType, float>>(
          element_grid(count), {sum.data(), unpacked.data(), count}, {written(unpacked)});
      CHECK(same_bits(unpacked, all_reduced(parts, kWire<TestType>)));

      // Into the last rank's slice.
      TestType* last = slices.data() + (ranks - 1) * stride;
      run_in_all_orders<ReduceSlices<TestType>>(
          element_grid(count), {slices.data(), last, ranks, stride, count}, {written(slices)});
      CHECK(same_bits(std::vector<TestType>(last, last + count), sum));
    }
  }
}

}  // namespace muster::runtime::cuda
