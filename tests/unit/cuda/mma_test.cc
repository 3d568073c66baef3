// SPDX-License-Identifier: Apache-2.0
//
// The map from lanes to matrix elements covers every element of every operand once, and a product
// by it is the product.
#include "worker_runtime/cuda/kernels/mma.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/numerics/random.h"
#include "worker_runtime/cuda/kernels/exec_host.h"

namespace muster::runtime::cuda {
namespace {

template <class Place>
std::size_t places(Place place, unsigned each, unsigned rows, unsigned columns) {
  std::set<std::pair<unsigned, unsigned>> seen;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    for (unsigned i = 0; i < each; ++i) {
      const MmaPlace at = place(lane, i);
      CHECK(at.row < rows);
      CHECK(at.column < columns);
      seen.emplace(at.row, at.column);
    }
  }
  return seen.size();
}

}  // namespace

TEST_CASE("each element of an operand has one lane and one register") {
  CHECK(places(mma_a_place, 8, kMmaM, kMmaK) == kMmaM * kMmaK);
  CHECK(places(mma_b_place, 4, kMmaK, kMmaN) == kMmaK * kMmaN);
  CHECK(places(mma_c_place, 4, kMmaM, kMmaN) == kMmaM * kMmaN);
}

TEMPLATE_TEST_CASE("a warp's product of tiles", "", Bf16, F16) {
  const auto a = random_values<TestType>(kMmaM * kMmaK, 1);
  const auto b = random_values<TestType>(kMmaK * kMmaN, 2);
  const auto c = random_values<float>(kMmaM * kMmaN, 3);
  struct Fragments {
    std::uint32_t a[4] = {};
    std::uint32_t b[2] = {};
    float c[4] = {};
  };
  std::vector<Fragments> lanes(kWarp);
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    for (unsigned i = 0; i < 8; i += 2) {
      const MmaPlace at = mma_a_place(lane, i);
      const std::size_t first = at.row * kMmaK + at.column;
      lanes[lane].a[i / 2] = two_in_one(a[first], a[first + 1]);
    }
    for (unsigned i = 0; i < 4; i += 2) {
      const MmaPlace low = mma_b_place(lane, i);
      const MmaPlace high = mma_b_place(lane, i + 1);
      lanes[lane].b[i / 2] =
          two_in_one(b[low.row * kMmaN + low.column], b[high.row * kMmaN + high.column]);
    }
    for (unsigned i = 0; i < 4; ++i) {
      const MmaPlace at = mma_c_place(lane, i);
      lanes[lane].c[i] = c[at.row * kMmaN + at.column];
    }
  }
  HostWarp warp(0, Order::kForwards);
  warp.mma<TestType>([&](Thread t) {
    Fragments& own = lanes[t.lane()];
    return MmaOperands{own.a, own.b, own.c};
  });
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    for (unsigned i = 0; i < 4; ++i) {
      const MmaPlace at = mma_c_place(lane, i);
      double want = static_cast<double>(c[at.row * kMmaN + at.column]);
      for (unsigned k = 0; k < kMmaK; ++k) {
        want += static_cast<double>(to_number(a[at.row * kMmaK + k])) *
                static_cast<double>(to_number(b[k * kMmaN + at.column]));
      }
      CHECK(std::abs(static_cast<double>(lanes[lane].c[i]) - want) < 2e-6 * kMmaK);
    }
  }
}

TEST_CASE("a warp's sum and maximum reach every lane") {
  std::vector<float> values = random_values<float>(kWarp, 4);
  double sum = 0;
  float most = values[0];
  for (const float value : values) {
    sum += static_cast<double>(value);
    most = std::max(most, value);
  }
  std::vector<float> sums = values;
  HostWarp warp(0, Order::kShuffled);
  warp.sum([&](Thread t) -> float& { return sums[t.lane()]; });
  warp.max([&](Thread t) -> float& { return values[t.lane()]; });
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    CHECK(std::abs(static_cast<double>(sums[lane]) - sum) < 1e-5);
    CHECK(sums[lane] == sums[0]);
    CHECK(values[lane] == most);
  }
}

TEST_CASE("sums and maxima of four lanes stay among them") {
  const std::vector<float> values = random_values<float>(kWarp, 4);
  std::vector<float> sums = values;
  std::vector<float> most = values;
  HostWarp warp(0, Order::kBackwards);
  warp.sum<4>([&](Thread t) -> float& { return sums[t.lane()]; });
  warp.max<4>([&](Thread t) -> float& { return most[t.lane()]; });
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const float* v = &values[lane / 4 * 4];
    CHECK(std::abs(sums[lane] - (v[0] + v[1] + v[2] + v[3])) < 1e-6F);
    CHECK(most[lane] == *std::max_element(v, v + 4));
  }
}

TEST_CASE("matrices are loaded as the operands of a product") {
  // Four matrices, one after the other; each number says where it is.
  struct alignas(16) Numbers {
    std::uint16_t at[4][8][8];
  } numbers;
  for (unsigned i = 0; i < 4 * 8 * 8; ++i)
    numbers.at[i / 64][i / 8 % 8][i % 8] = static_cast<std::uint16_t>(i);
  std::uint32_t rows[kWarp][4];
  std::uint32_t columns[kWarp][4];
  HostWarp warp(0, Order::kForwards);
  warp.load_matrices<false>([&](Thread t) {
    return MatrixRows{numbers.at[t.lane() / 8][t.lane() % 8], rows[t.lane()]};
  });
  warp.load_matrices<true>([&](Thread t) {
    return MatrixRows{numbers.at[t.lane() / 8][t.lane() % 8], columns[t.lane()]};
  });
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    for (unsigned m = 0; m < 4; ++m) {
      for (unsigned i = 0; i < 2; ++i) {
        // The eight rows and columns of A's (and D's) first quarter, and of B's first half.
        const MmaPlace a = mma_a_place(lane, i);
        const MmaPlace b = mma_b_place(lane, i);
        CHECK((rows[lane][m] >> (16 * i) & 0xffffU) == numbers.at[m][a.row][a.column]);
        CHECK((columns[lane][m] >> (16 * i) & 0xffffU) == numbers.at[m][b.row][b.column]);
      }
    }
  }
}

TEST_CASE("copies arrive at once or at the end of the wait, and as zeroes where there is nothing") {
  const std::vector<float> from(4, 3.0F);
  struct alignas(16) Place {
    float x[4] = {1, 1, 1, 1};
  };
  for (const Order order : {Order::kForwards, Order::kBackwards}) {
    HostBlock block(0, 0, kWarp, 0, order);
    Place first;
    Place second;
    block.copies<1>([&](Thread t) {
      if (t.index == 0) block.copy_pack(first.x, from.data(), true);
    });
    CHECK(first.x[3] == (order == Order::kForwards ? 3 : 1));
    block.copies<1>([&](Thread t) {
      if (t.index == 5) block.copy_pack(second.x, from.data(), false);
    });
    CHECK(first.x[3] == 3);
    CHECK(second.x[0] == (order == Order::kForwards ? 0 : 1));
    block.copies<0>([&](Thread t) {
      if (t.index == 7) block.copy_word(&second.x[2], from.data(), true);
    });
    CHECK((second.x[0] == 0 && second.x[1] == 0 && second.x[2] == 3 && second.x[3] == 0));
  }
}

TEST_CASE("an order takes everything once") {
  for (const std::uint64_t count : {1U, 2U, 31U, 32U, 64U, 256U, 1000U}) {
    for (const Order order : {Order::kForwards, Order::kBackwards, Order::kShuffled}) {
      std::set<std::uint64_t> seen;
      for (std::uint64_t step = 0; step < count; ++step)
        seen.insert(in_order(order, step, count));
      CHECK(seen.size() == count);
      CHECK(*seen.rbegin() == count - 1);
    }
  }
}

}  // namespace muster::runtime::cuda
