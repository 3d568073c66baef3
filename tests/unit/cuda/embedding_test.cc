// SPDX-License-Identifier: Apache-2.0
//
// Embeddings have the CPU's bits, gradients of tokens that repeat included.
#include "worker_runtime/cuda/kernels/embedding.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/cuda/orders.h"
#include "tests/unit/cuda/shapes.h"
#include "tests/unit/numerics/random.h"
#include "worker_runtime/cpu/kernels.h"
#include "worker_runtime/cuda/kernels/token_order.h"

namespace muster::runtime::cuda {
namespace {

struct Shape {
  std::size_t batch, time, width, vocabulary;
};
// One token only, tokens that repeat much and little; widths across a block's 512 columns.
const Shape kShapes[] = {{1, 1, 1, 1},    {1, 7, 9, 1},    {3, 11, 8, 4},    {4, 16, 24, 1000},
                         {2, 33, 65, 20}, {5, 8, 520, 16}, {2, 9, 1032, 50}, {6, 20, 33, 7}};

std::vector<Shape> shapes() {
  std::vector<Shape> all(std::begin(kShapes), std::end(kShapes));
  for (std::uint64_t i = 0; i < 12; ++i) {
    all.push_back({random_size(72, 4 * i, 6), random_size(72, 4 * i + 1, 40),
                   random_size(72, 4 * i + 2, 1100), random_size(72, 4 * i + 3, 1000)});
  }
  return all;
}

template <class S>
void check(const Shape& s, std::uint64_t seed) {
  const Kernels<S>& cpu = kernels<S>(Isa::kPortable);
  const std::size_t rows = s.batch * s.time;
  const std::size_t stride = s.time + 1;
  const auto tokens =
      random_tokens(s.batch * stride, seed, static_cast<std::int64_t>(s.vocabulary));
  const auto wte = random_values<S>(s.vocabulary * s.width, seed + 1);
  const auto wpe = random_values<S>(s.time * s.width, seed + 2);
  std::vector<S> want(rows * s.width), x(rows * s.width);
  cpu.embed(tokens.data(), stride, widened(wte).data(), widened(wpe).data(), want.data(), s.batch,
            s.time, s.width);
  run_in_all_orders<Embed<S>>(
      row_grid(rows, s.width),
      {tokens.data(), wte.data(), wpe.data(), x.data(), stride, s.batch, s.time, s.width},
      {written(x)});
  CHECK(same_bits(x, want));

  const auto dx = random_values<S>(rows * s.width, seed + 3);
  std::vector<float> want_wte = random_values<float>(s.vocabulary * s.width, seed + 4);
  std::vector<float> want_wpe = random_values<float>(s.time * s.width, seed + 5);
  std::vector<float> dwte = want_wte;
  std::vector<float> dwpe = want_wpe;
  cpu.embed_backward(tokens.data(), stride, dx.data(), want_wte.data(), want_wpe.data(), s.batch,
                     s.time, s.width);
  const TokenOrder order = token_order(tokens, stride, s.batch, s.time, s.vocabulary);
  run_in_all_orders<TokenGradient<S>>(TokenGradient<S>::grid(rows, s.width),
                                      {order.distinct.data(), order.starts.data(),
                                       order.places.data(), dx.data(), dwte.data(), s.width},
                                      {written(dwte)});
  CHECK(same_bits(dwte, want_wte));
  run_in_all_orders<PositionGradient<S>>(row_grid(s.time, s.width),
                                         {dx.data(), dwpe.data(), s.batch, s.time, s.width},
                                         {written(dwpe)});
  CHECK(same_bits(dwpe, want_wpe));
}

}  // namespace

TEMPLATE_TEST_CASE("embeddings have the CPU's bits", "", float, Bf16, F16) {
  std::uint64_t seed = 1;
  for (const Shape& shape : shapes()) {
    CAPTURE(shape.batch, shape.time, shape.width, shape.vocabulary);
    check<TestType>(shape, seed += 6);
  }
}

TEST_CASE("places are sorted by token, and stay in order") {
  //                                       a sequence; what lies between two is no place
  const std::vector<std::int32_t> tokens = {5, 2, 5, 9, /**/ 3, 2, 5, 9, /**/ 0, 5, 2};
  const TokenOrder order = token_order(tokens, 4, 3, 3, 10);
  CHECK(order.distinct == std::vector<std::int32_t>{0, 2, 3, 5, 0, 0, 0, 0, 0});
  CHECK(order.starts == std::vector<std::uint32_t>{0, 1, 4, 5, 9, 9, 9, 9, 9, 9});
  CHECK(order.places == std::vector<std::uint32_t>{6, 1, 4, 8, 3, 0, 2, 5, 7});

  const TokenOrder none = token_order({}, 1, 0, 1, 10);
  CHECK(none.starts == std::vector<std::uint32_t>{0});
  CHECK(none.places.empty());
}

TEST_CASE("random places are sorted by token, and stay in order") {
  for (const std::int64_t vocabulary : {1, 2, 17, 300, 60000}) {
    CAPTURE(vocabulary);
    const std::size_t time = 100;
    const auto tokens = random_tokens(5 * time, 3, vocabulary);
    const TokenOrder order =
        token_order(tokens, time, 5, time, static_cast<std::size_t>(vocabulary));
    std::vector<std::uint32_t> want(5 * time);
    std::iota(want.begin(), want.end(), 0U);
    std::stable_sort(want.begin(), want.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return tokens[a] < tokens[b]; });
    CHECK(order.places == want);
    for (std::size_t i = 0; i < order.distinct.size(); ++i) {
      for (std::uint32_t p = order.starts[i]; p < order.starts[i + 1]; ++p)
        CHECK(tokens[order.places[p]] == order.distinct[i]);
    }
    CHECK(order.starts.back() == 5 * time);
  }
}

}  // namespace muster::runtime::cuda
