// SPDX-License-Identifier: Apache-2.0
//
// LayerNorm: statistics, y and dx within rounding of FP64; with given statistics, the CPU's bits
// for y, dweight and dbias.
#include "worker_runtime/cuda/kernels/norm.h"

#include <cmath>
#include <cstddef>
#include <iterator>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/cuda/orders.h"
#include "tests/unit/cuda/shapes.h"
#include "tests/unit/numerics/random.h"
#include "worker_runtime/cpu/kernels.h"

namespace muster::runtime::cuda {
namespace {

// Widths across a lane's eight columns and a warp's 256, rows across blocks of 8 and of 64.
const RowShape kShapes[] = {{1, 1},   {3, 7},    {2, 8},   {9, 9},   {65, 17},
                            {7, 256}, {33, 257}, {5, 768}, {64, 40}, {130, 33}};

std::vector<RowShape> shapes() {
  std::vector<RowShape> all(std::begin(kShapes), std::end(kShapes));
  for (std::uint64_t i = 0; i < 12; ++i)
    all.push_back({random_size(73, 2 * i, 140), random_size(73, 2 * i + 1, 800)});
  return all;
}

constexpr double kUnit = 0x1p-24;  // of one FP32 operation

template <class S>
struct Data {
  std::size_t rows, width, count;
  std::vector<S> x, weight, bias, dx;
  std::vector<float> dy;
  Data(const RowShape& shape, std::uint64_t seed)
      : rows(shape.rows),
        width(shape.width),
        count(rows * width),
        x(random_values<S>(count, seed, 2)),
        weight(random_values<S>(width, seed + 1)),
        bias(random_values<S>(width, seed + 2)),
        dx(random_values<S>(count, seed + 3)),
        dy(random_values<float>(count, seed + 4)) {}
  // The longest chain of additions of a sum: a lane's columns, and the tree.
  double chain() const {
    const std::size_t pieces = (width + 255) / 256;
    return static_cast<double>(pieces * 8 + 5);
  }
};

// FP64, and how far FP32 may be off before it is stored.
struct Reference {
  std::vector<double> mean, rstd, y, dx, mean_error, rstd_error, y_error, dx_error;
};

// One row of it. The mean's error is a chain of additions of |x|; the variance's, relative, as
// many units and twice the shift of the mean; rstd's half of that and three operations.
template <class S>
void reference_row(const Data<S>& d, std::size_t r, Reference& out) {
  const auto size = static_cast<double>(d.width);
  const std::vector<double> weight = in_doubles(d.weight);
  const std::vector<double> bias = in_doubles(d.bias);
  double mean = 0;
  double absolute = 0;
  for (std::size_t i = 0; i < d.width; ++i) {
    const auto x = static_cast<double>(to_number(d.x[r * d.width + i]));
    mean += x / size;
    absolute += std::abs(x) / size;
  }
  double variance = 0;
  for (std::size_t i = 0; i < d.width; ++i) {
    const auto x = static_cast<double>(to_number(d.x[r * d.width + i]));
    variance += (x - mean) * (x - mean) / size;
  }
  const double rstd = 1 / std::sqrt(variance + 1e-5);
  const double mean_error = (d.chain() + 1) * kUnit * absolute;
  const double variance_error = (d.chain() + 3) * kUnit * variance +
                                2 * kUnit * std::abs(mean) * std::sqrt(variance) +
                                2 * mean_error * mean_error;
  const double rstd_error = rstd * (variance_error * rstd * rstd / 2 + 3 * kUnit);
  out.mean.push_back(mean);
  out.rstd.push_back(rstd);
  out.mean_error.push_back(mean_error);
  out.rstd_error.push_back(rstd_error);

  std::vector<double> normal, normal_error, scaled;
  double direct = 0, along = 0, direct_size = 0, along_size = 0, along_error = 0;
  for (std::size_t i = 0; i < d.width; ++i) {
    const std::size_t at = r * d.width + i;
    const double distance = static_cast<double>(to_number(d.x[at])) - mean;
    normal.push_back(distance * rstd);
    normal_error.push_back(mean_error * rstd +
                           std::abs(distance) * (rstd_error + 2 * rstd * kUnit));
    out.y.push_back(normal[i] * weight[i] + bias[i]);
    out.y_error.push_back(normal_error[i] * std::abs(weight[i]) + kUnit * std::abs(out.y.back()));
    scaled.push_back(static_cast<double>(rounded<S>(d.dy[at])) * weight[i]);
    direct += scaled[i] / size;
    along += scaled[i] * normal[i] / size;
    direct_size += std::abs(scaled[i]) / size;
    along_size += std::abs(scaled[i] * normal[i]) / size;
    along_error += std::abs(scaled[i]) * normal_error[i] / size;
  }
  const double direct_error = (d.chain() + 2) * kUnit * direct_size;
  along_error += (d.chain() + 2) * kUnit * along_size;
  for (std::size_t i = 0; i < d.width; ++i) {
    const double inner = scaled[i] - direct - normal[i] * along;
    const double size_of_parts =
        std::abs(scaled[i]) + std::abs(direct) + std::abs(normal[i] * along);
    const double inner_error = 3 * kUnit * size_of_parts + direct_error +
                               std::abs(normal[i]) * along_error +
                               normal_error[i] * std::abs(along);
    out.dx.push_back(inner * rstd);
    out.dx_error.push_back(inner_error * rstd + std::abs(inner) * (rstd_error + rstd * kUnit));
  }
}

template <class S>
Reference reference(const Data<S>& d) {
  Reference out;
  for (std::size_t r = 0; r < d.rows; ++r)
    reference_row(d, r, out);
  return out;
}

template <class S>
void check_forward(const Data<S>& d, const Reference& want) {
  std::vector<S> y(d.count);
  std::vector<float> mean(d.rows), rstd(d.rows);
  run_in_all_orders<NormForward<S>>(warp_row_grid(d.rows),
                                    {d.x.data(), d.weight.data(), d.bias.data(), y.data(),
                                     mean.data(), rstd.data(), d.rows, d.width},
                                    {written(y), written(mean), written(rstd)});
  CHECK(worst_error(mean, want.mean, want.mean_error) <= 1);
  CHECK(worst_error(rstd, want.rstd, want.rstd_error) <= 1);
  CHECK(worst_error(y, want.y, want.y_error) <= 1);

  // In place.
  std::vector<S> in_place = d.x;
  run_in_all_orders<NormForward<S>>(warp_row_grid(d.rows),
                                    {in_place.data(), d.weight.data(), d.bias.data(),
                                     in_place.data(), mean.data(), rstd.data(), d.rows, d.width},
                                    {written(in_place), written(mean), written(rstd)});
  CHECK(same_bits(in_place, y));
  // y is a function of the statistics: the CPU's expression, element by element.
  std::vector<S> exact(d.count);
  for (std::size_t i = 0; i < d.count; ++i) {
    const std::size_t r = i / d.width;
    const float normal = (to_number(d.x[i]) - mean[r]) * rstd[r];
    exact[i] = stored<S>(numerics::multiply_add(normal, to_number(d.weight[i % d.width]),
                                                to_number(d.bias[i % d.width])));
  }
  CHECK(same_bits(y, exact));
}

// With the CPU's statistics, so that what follows from them can have the CPU's bits.
template <class S, class P>
void check_backward(const Data<S>& d, const std::vector<P>& dy, const Reference& want) {
  const Kernels<S>& cpu = kernels<S>(Isa::kPortable);
  const std::vector<float> weight = widened(d.weight);
  const std::vector<float> wide_dy = widened(dy);
  std::vector<S> y(d.count);
  std::vector<float> mean(d.rows), rstd(d.rows), scratch(2 * d.width);
  cpu.layernorm(d.x.data(), weight.data(), widened(d.bias).data(), y.data(), mean.data(),
                rstd.data(), d.rows, d.width);
  std::vector<S> cpu_dx = d.dx;
  std::vector<float> want_weight = random_values<float>(d.width, 5);
  std::vector<float> want_bias = random_values<float>(d.width, 6);
  std::vector<float> dweight = want_weight;
  std::vector<float> dbias = want_bias;
  cpu.layernorm_backward(d.x.data(), weight.data(), mean.data(), rstd.data(), wide_dy.data(), false,
                         cpu_dx.data(), want_weight.data(), want_bias.data(), scratch.data(),
                         d.rows, d.width);

  const std::size_t blocks = row_blocks(d.rows);
  std::vector<float> weights(blocks * d.width), biases(blocks * d.width);
  run_in_all_orders<NormPartials<S, P>>(NormPartials<S, P>::grid(d.rows, d.width),
                                        {d.x.data(), mean.data(), rstd.data(), dy.data(),
                                         weights.data(), biases.data(), d.rows, d.width},
                                        {written(weights), written(biases)});
  run_in_all_orders<AddPartials>(AddPartials::grid(d.width),
                                 {weights.data(), dweight.data(), blocks, d.width},
                                 {written(dweight)});
  run_in_all_orders<AddPartials>(AddPartials::grid(d.width),
                                 {biases.data(), dbias.data(), blocks, d.width}, {written(dbias)});
  CHECK(same_bits(dweight, want_weight));
  CHECK(same_bits(dbias, want_bias));

  std::vector<S> dx = d.dx;
  const auto run = [&](unsigned replace) {
    run_in_all_orders<NormBackward<S, P>>(warp_row_grid(d.rows),
                                          {d.x.data(), d.weight.data(), mean.data(), rstd.data(),
                                           dy.data(), dx.data(), d.rows, d.width, replace},
                                          {written(dx)});
  };
  run(0);
  std::vector<double> sum = want.dx;
  std::vector<double> sum_error = want.dx_error;
  for (std::size_t i = 0; i < d.count; ++i) {
    sum[i] += static_cast<double>(to_number(d.dx[i]));
    sum_error[i] += kUnit * std::abs(sum[i]);
  }
  CHECK(worst_error(dx, sum, sum_error) <= 1);
  CHECK(worst_error(cpu_dx, sum, sum_error) <= 1);
  run(1);
  CHECK(worst_error(dx, want.dx, want.dx_error) <= 1);
}

}  // namespace

TEMPLATE_TEST_CASE("LayerNorm is that of FP64, rounded", "", float, Bf16, F16) {
  std::uint64_t seed = 1;
  for (const RowShape& shape : shapes()) {
    CAPTURE(shape.rows, shape.width);
    const Data<TestType> data(shape, seed);
    seed += 5;
    const Reference want = reference(data);
    check_forward(data, want);
    check_backward<TestType, float>(data, data.dy, want);
    if constexpr (!std::is_same_v<TestType, float>) {
      std::vector<TestType> dy(data.count);
      kernels<TestType>(Isa::kPortable).narrow(data.dy.data(), dy.data(), data.count);
      check_backward<TestType, TestType>(data, dy, want);
    }
  }
}

TEST_CASE("LayerNorm of arrays that are not aligned, and of a row without spread") {
  const std::size_t width = 264;
  const auto x = random_values<Bf16>(3 * width + 1, 7);
  const auto row = random_values<Bf16>(width + 1, 8);
  std::vector<Bf16> aligned(x.begin() + 1, x.end());
  const std::vector<Bf16> aligned_row(row.begin() + 1, row.end());
  std::vector<Bf16> want(3 * width), y(3 * width + 1);
  std::vector<float> mean(3), rstd(3);
  run_on_host<NormForward<Bf16>>(
      warp_row_grid(3), {aligned.data(), aligned_row.data(), aligned_row.data(), want.data(),
                         mean.data(), rstd.data(), 3, width});
  run_in_all_orders<NormForward<Bf16>>(warp_row_grid(3),
                                       {x.data() + 1, row.data() + 1, row.data() + 1, y.data() + 1,
                                        mean.data(), rstd.data(), 3, width},
                                       {written(y), written(mean), written(rstd)});
  CHECK(y[0].bits == 0);
  CHECK(same_bits(std::vector<Bf16>(y.begin() + 1, y.end()), want));

  std::fill(aligned.begin(), aligned.end(), numerics::to_bf16(3));
  run_on_host<NormForward<Bf16>>(
      warp_row_grid(3), {aligned.data(), aligned_row.data(), aligned_row.data(), want.data(),
                         mean.data(), rstd.data(), 3, width});
  CHECK(mean[1] == 3.0F);
  CHECK(rstd[1] == 1.0F / numerics::square_root(1e-5F));
  CHECK(same_bits(std::vector<Bf16>(want.begin() + width, want.begin() + 2 * width), aligned_row));
}

}  // namespace muster::runtime::cuda
