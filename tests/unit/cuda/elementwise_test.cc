// SPDX-License-Identifier: Apache-2.0
//
// Element-wise kernels and column sums give the bits of cpu/kernels, whatever the shape, the
// alignment and the order of threads.
#include "worker_runtime/cuda/kernels/elementwise.h"

#include <cstddef>
#include <iterator>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/cuda/orders.h"
#include "tests/unit/numerics/random.h"
#include "worker_runtime/cpu/kernels.h"
#include "worker_runtime/cuda/kernels/column_sums.h"

namespace muster::runtime::cuda {
namespace {

struct Shape {
  std::size_t rows, width;
};
// Tails of one, of seven, none; widths across a block's columns, rows across the row block of 64.
const Shape kShapes[] = {{1, 1},   {1, 8},    {3, 7},    {2, 9},    {64, 16},  {65, 17},  {129, 33},
                         {5, 520}, {33, 257}, {1, 2049}, {130, 80}, {7, 1024}, {200, 65}, {63, 24}};

std::vector<Shape> shapes() {
  std::vector<Shape> all(std::begin(kShapes), std::end(kShapes));
  for (std::uint64_t i = 0; i < 12; ++i)
    all.push_back({random_size(71, 2 * i, 150), random_size(71, 2 * i + 1, 2100)});
  return all;
}

template <class S>
struct Data {
  std::vector<float> product;
  std::vector<S> stored, row, residual;
  std::size_t rows, width, count;
  Data(const Shape& shape, std::uint64_t seed)
      : product(random_values<float>(shape.rows * shape.width, seed, 3)),
        stored(random_values<S>(shape.rows * shape.width, seed + 1, 3)),
        row(random_values<S>(shape.width, seed + 2)),
        residual(random_values<S>(shape.rows * shape.width, seed + 3, 2)),
        rows(shape.rows),
        width(shape.width),
        count(rows * width) {}
};

template <class S>
std::vector<float> wide(const std::vector<S>& values) {
  std::vector<float> out(values.size());
  kernels<S>(Isa::kPortable).widen(values.data(), out.data(), values.size());
  return out;
}

template <class S>
void check_sums_and_gelu(const Data<S>& d) {
  const Kernels<S>& cpu = kernels<S>(Isa::kPortable);
  const std::vector<float> row = wide(d.row);
  const Grid rows = row_grid(d.rows, d.width);
  std::vector<S> want(d.count), got(d.count), want_act(d.count), act(d.count);

  cpu.bias(d.product.data(), row.data(), want.data(), d.rows, d.width);
  run_in_all_orders<AddBias<S, float>>(
      rows, {d.product.data(), d.row.data(), got.data(), d.rows, d.width}, {written(got)});
  CHECK(same_bits(got, want));

  cpu.bias_residual(d.product.data(), row.data(), d.residual.data(), want.data(), d.rows, d.width);
  run_in_all_orders<AddResidual<S, float>>(
      rows, {d.product.data(), d.row.data(), d.residual.data(), got.data(), d.rows, d.width},
      {written(got)});
  CHECK(same_bits(got, want));

  cpu.bias_gelu(d.product.data(), row.data(), want.data(), want_act.data(), d.rows, d.width);
  run_in_all_orders<BiasGelu<S, float>>(
      rows, {d.product.data(), d.row.data(), got.data(), act.data(), d.rows, d.width},
      {written(got), written(act)});
  CHECK(same_bits(got, want));
  CHECK(same_bits(act, want_act));

  cpu.gelu_backward(d.product.data(), d.residual.data(), want.data(), d.count);
  run_in_all_orders<GeluBackward<S, float>>(
      element_grid(d.count), {d.product.data(), d.residual.data(), got.data(), d.count},
      {written(got)});
  CHECK(same_bits(got, want));
}

// With a product that was stored in S: as if it had been widened first.
template <class S>
void check_narrow_products(const Data<S>& d) {
  const Kernels<S>& cpu = kernels<S>(Isa::kPortable);
  const std::vector<float> row = wide(d.row);
  const std::vector<float> product = wide(d.stored);
  const Grid rows = row_grid(d.rows, d.width);
  std::vector<S> want(d.count), act(d.count), want_act(d.count);

  cpu.bias_residual(product.data(), row.data(), d.residual.data(), want.data(), d.rows, d.width);
  std::vector<S> got = d.residual;  // in place
  run_in_all_orders<AddResidual<S, S>>(
      rows, {d.stored.data(), d.row.data(), got.data(), got.data(), d.rows, d.width},
      {written(got)});
  CHECK(same_bits(got, want));

  cpu.bias_gelu(product.data(), row.data(), want.data(), want_act.data(), d.rows, d.width);
  got = d.stored;  // in place
  run_in_all_orders<BiasGelu<S, S>>(
      rows, {got.data(), d.row.data(), got.data(), act.data(), d.rows, d.width},
      {written(got), written(act)});
  CHECK(same_bits(got, want));
  CHECK(same_bits(act, want_act));

  // Without its bias, what is stored is what was stored.
  const std::vector<float> no_bias(d.width);
  cpu.bias_gelu(product.data(), no_bias.data(), want.data(), want_act.data(), d.rows, d.width);
  run_in_all_orders<Gelu<S>>(element_grid(d.count), {d.stored.data(), act.data(), d.count},
                             {written(act)});
  CHECK(same_bits(act, want_act));

  cpu.bias(product.data(), row.data(), want.data(), d.rows, d.width);
  got = d.stored;
  run_in_all_orders<AddBias<S, S>>(rows, {got.data(), d.row.data(), got.data(), d.rows, d.width},
                                   {written(got)});
  CHECK(same_bits(got, want));

  cpu.gelu_backward(product.data(), d.residual.data(), want.data(), d.count);
  got = d.stored;
  run_in_all_orders<GeluBackward<S, S>>(
      element_grid(d.count), {got.data(), d.residual.data(), got.data(), d.count}, {written(got)});
  CHECK(same_bits(got, want));
}

template <class S>
void check_casts_and_sums(const Data<S>& d) {
  const Kernels<S>& cpu = kernels<S>(Isa::kPortable);
  std::vector<S> narrowed(d.count), want_narrow(d.count);
  cpu.narrow(d.product.data(), want_narrow.data(), d.count);
  run_in_all_orders<Cast<float, S>>(
      element_grid(d.count), {d.product.data(), narrowed.data(), d.count}, {written(narrowed)});
  CHECK(same_bits(narrowed, want_narrow));

  std::vector<float> widened(d.count);
  run_in_all_orders<Cast<S, float>>(element_grid(d.count),
                                    {d.stored.data(), widened.data(), d.count}, {written(widened)});
  CHECK(same_bits(widened, wide(d.stored)));

  std::vector<float> sum = widened;
  cpu.add(d.product.data(), widened.data(), d.count);
  run_in_all_orders<Add>(element_grid(d.count), {d.product.data(), sum.data(), d.count},
                         {written(sum)});
  CHECK(same_bits(sum, widened));

  std::vector<float> want = random_values<float>(d.width, 9);
  std::vector<float> got = want;
  cpu.column_sums(d.stored.data(), want.data(), d.rows, d.width);
  const std::size_t blocks = row_blocks(d.rows);
  std::vector<float> partials(blocks * d.width);
  run_in_all_orders<ColumnPartials<S>>(ColumnPartials<S>::grid(d.rows, d.width),
                                       {d.stored.data(), partials.data(), d.rows, d.width},
                                       {written(partials)});
  run_in_all_orders<AddPartials>(AddPartials::grid(d.width),
                                 {partials.data(), got.data(), blocks, d.width}, {written(got)});
  CHECK(same_bits(got, want));
}

}  // namespace

TEMPLATE_TEST_CASE("element-wise kernels have the CPU's bits", "", float, Bf16, F16) {
  std::uint64_t seed = 1;
  for (const Shape& shape : shapes()) {
    CAPTURE(shape.rows, shape.width);
    const Data<TestType> data(shape, seed++);
    check_sums_and_gelu(data);
    check_narrow_products(data);
    check_casts_and_sums(data);
  }
}

TEST_CASE("arrays that are not aligned are moved element by element") {
  const auto in = random_values<float>(101, 3);
  for (const std::size_t shift : {0U, 1U, 2U, 3U, 5U}) {
    CAPTURE(shift);
    std::vector<Bf16> out(in.size());
    std::vector<Bf16> want(in.size());
    const std::size_t count = in.size() - shift;
    kernels<Bf16>(Isa::kPortable).narrow(in.data() + shift, want.data() + shift, count);
    run_in_all_orders<Cast<float, Bf16>>(
        element_grid(count), {in.data() + shift, out.data() + shift, count}, {written(out)});
    CHECK(same_bits(out, want));
  }
}

}  // namespace muster::runtime::cuda
