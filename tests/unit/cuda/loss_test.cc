// SPDX-License-Identifier: Apache-2.0
//
// Cross-entropy: losses and gradients within rounding of FP64, whatever stands in the padding;
// nothing is overwritten before it is read.
#include "worker_runtime/cuda/kernels/loss.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/cuda/orders.h"
#include "tests/unit/cuda/shapes.h"
#include "tests/unit/numerics/random.h"
#include "worker_runtime/cpu/kernels.h"

namespace muster::runtime::cuda {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Shape {
  std::size_t batch, time, first_row, rows, vocabulary, padded, stride;
};
// Vocabularies around a thread's eight columns and a window of 2048; GPT-2's; slices of a batch;
// strides that are not aligned.
const Shape kShapes[] = {{1, 1, 0, 1, 1, 1, 1},          {2, 3, 0, 6, 7, 8, 8},
                         {1, 5, 2, 3, 8, 8, 9},          {3, 4, 5, 6, 257, 320, 320},
                         {2, 2, 0, 4, 2047, 2048, 2048}, {1, 3, 1, 2, 2048, 2048, 2048},
                         {2, 2, 1, 3, 2049, 2056, 2064}, {1, 2, 0, 2, 4099, 4099, 4101},
                         {1, 2, 0, 2, 6000, 6016, 6020}, {1, 1, 0, 1, 50257, 50304, 50304}};

// A slice of a batch, a vocabulary, what pads it, and a stride beyond.
Shape random_shape(std::uint64_t i) {
  const auto size = [i](std::uint64_t which, std::size_t most) {
    return random_size(74, 7 * i + which, most);
  };
  Shape shape{size(0, 4), size(1, 6), 0, 0, size(2, 5000), 0, 0};
  const std::size_t all = shape.batch * shape.time;
  shape.first_row = size(3, all) - 1;
  shape.rows = size(4, all - shape.first_row);
  shape.padded = shape.vocabulary + size(5, 64) - 1;
  shape.stride = shape.padded + size(6, 9) - 1;
  return shape;
}

std::vector<Shape> shapes() {
  std::vector<Shape> all(std::begin(kShapes), std::end(kShapes));
  for (std::uint64_t i = 0; i < 12; ++i)
    all.push_back(random_shape(i));
  return all;
}

struct Data {
  Shape s;
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;  // [rows][stride]
  std::vector<float> dense;   // [rows][vocabulary]
  std::vector<std::size_t> targets;
  Data(const Shape& shape, std::uint64_t seed, float deviation)
      : s(shape),
        tokens(
            random_tokens(s.batch * (s.time + 1), seed, static_cast<std::int64_t>(s.vocabulary))),
        logits(random_values<float>(s.rows * s.stride, seed + 1, deviation)) {
    for (std::size_t r = 0; r < s.rows; ++r) {
      float* row = logits.data() + r * s.stride;
      std::fill(row + s.vocabulary, row + s.stride, kNaN);
      dense.insert(dense.end(), row, row + s.vocabulary);
      const std::size_t at = s.first_row + r;
      targets.push_back(
          static_cast<std::size_t>(tokens[at / s.time * (s.time + 1) + at % s.time + 1]));
    }
  }
};

// One row in FP64, and how far FP32 may be off: see loss.h.
struct Row {
  double loss, loss_error;
  std::vector<double> gradient, gradient_error;
};
Row reference_row(const float* x, std::size_t count, std::size_t target, double scale) {
  const auto maximum = static_cast<double>(*std::max_element(x, x + count));
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i)
    sum += std::exp(static_cast<double>(x[i]) - maximum);
  const auto size = static_cast<double>(count);
  const double off = (11 * std::ceil(size / 2048) + 24 + std::log(size)) * kUnit;
  const double aim = maximum - static_cast<double>(x[target]);
  Row row{.loss = std::log(sum) + aim,
          .loss_error = off + 4 * kUnit * (std::log(sum) + aim),
          .gradient = {},
          .gradient_error = {}};
  for (std::size_t i = 0; i < count; ++i) {
    const double distance = maximum - static_cast<double>(x[i]);
    const double p = std::exp(-distance) / sum;
    const double whole = i == target ? p - 1 : p;
    row.gradient.push_back(whole * scale);
    row.gradient_error.push_back(
        scale * (p * (off + (5 + distance) * kUnit) + 4 * kUnit * std::abs(whole) + 0x1p-147));
  }
  return row;
}

template <class S>
void run(const Data& d, std::vector<float>& logits, std::vector<float>& losses, float scale,
         bool gradient) {
  run_in_all_orders<CrossEntropy<S>>(
      CrossEntropy<S>::grid(d.s.rows),
      {logits.data(), d.tokens.data() + 1, losses.data(), d.s.time + 1, d.s.time, d.s.first_row,
       d.s.rows, d.s.vocabulary, d.s.padded, d.s.stride, &scale, gradient ? 1U : 0U},
      {written(logits), written(losses)});
}

// The gradient of a row, copied out of the memory of its logits.
template <class S>
std::vector<S> gradient_row(const Data& d, const std::vector<float>& logits, std::size_t r) {
  std::vector<S> row(d.s.padded);
  std::memcpy(static_cast<void*>(row.data()), logits.data() + r * d.s.stride,
              row.size() * sizeof(S));
  return row;
}

template <class S>
void check(const Data& d, float scale) {
  std::vector<float> logits = d.logits;
  std::vector<float> losses(d.s.rows);
  run<S>(d, logits, losses, scale, false);
  CHECK(same_bits(logits, d.logits));
  const std::vector<float> losses_alone = losses;
  run<S>(d, logits, losses, scale, true);
  CHECK(same_bits(losses, losses_alone));

  std::vector<double> want_losses, losses_error;
  for (std::size_t r = 0; r < d.s.rows; ++r) {
    const Row want = reference_row(d.dense.data() + r * d.s.vocabulary, d.s.vocabulary,
                                   d.targets[r], static_cast<double>(scale));
    want_losses.push_back(want.loss);
    losses_error.push_back(want.loss_error);
    std::vector<S> row = gradient_row<S>(d, logits, r);
    for (std::size_t i = d.s.vocabulary; i < d.s.padded; ++i)
      CHECK(to_number(row[i]) == 0.0F);
    row.resize(d.s.vocabulary);
    CHECK(worst_error(row, want.gradient, want.gradient_error) <= 1);
  }
  CHECK(worst_error(losses, want_losses, losses_error) <= 1);

  std::vector<double> sum(1);
  run_in_all_orders<SumLosses>(SumLosses::grid(), {losses.data(), sum.data(), d.s.rows},
                               {written(sum)});
  double in_order = 0;
  for (const float loss : losses)
    in_order += static_cast<double>(loss);
  CHECK(sum[0] == in_order);
  // The CPU's sum, by the same bounds.
  std::vector<float> dense = d.dense;
  const double cpu = kernels<float>(Isa::kPortable)
                         .cross_entropy(dense.data(), d.tokens.data() + 1, d.s.time + 1, d.s.time,
                                        d.s.first_row, d.s.rows, d.s.vocabulary, scale, nullptr);
  double allowed = 0;
  for (const double error : losses_error)
    allowed += 2 * error;
  CHECK(std::abs(cpu - sum[0]) <= allowed);
}

}  // namespace

TEMPLATE_TEST_CASE("cross-entropy is that of FP64, rounded", "", float, Bf16, F16) {
  std::uint64_t seed = 1;
  for (const Shape& shape : shapes()) {
    for (const float deviation : {0.5F, 20.0F}) {
      CAPTURE(shape.rows, shape.vocabulary, deviation);
      check<TestType>(Data(shape, seed += 3, deviation), 64.0F);
    }
  }
}

TEST_CASE("cross-entropy of logits that are all far below zero") {
  const Shape shape{1, 2, 0, 2, 2051, 2056, 2056};
  Data d(shape, 8, 1);
  for (float& x : d.logits)
    x = x - 500;
  for (float& x : d.dense)
    x = x - 500;
  check<float>(d, 1);
}

TEMPLATE_TEST_CASE("cross-entropy of logits that are not finite", "", float, Bf16) {
  const Shape shape{1, 4, 0, 4, 3000, 3008, 3008};
  Data d(shape, 5, 1);
  const auto row = [&](std::vector<float>& logits, std::size_t r) {
    return logits.data() + r * shape.stride;
  };
  std::fill_n(row(d.logits, 0), 2900, -kInfinity);  // whole windows of them
  row(d.logits, 0)[d.targets[0]] = 1;
  row(d.logits, 1)[17] = kNaN;
  row(d.logits, 2)[2500] = kInfinity;
  std::fill_n(row(d.logits, 3), 3000, -kInfinity);
  std::vector<float> logits = d.logits;
  std::vector<float> losses(4);
  run<TestType>(d, logits, losses, 1, true);

  const Row want = reference_row(row(d.logits, 0), 3000, d.targets[0], 1);
  CHECK(std::abs(static_cast<double>(losses[0]) - want.loss) <= want.loss_error);
  std::vector<TestType> gradient = gradient_row<TestType>(d, logits, 0);
  CHECK(to_number(gradient[d.targets[0] == 0 ? 1 : 0]) == 0.0F);
  for (const std::size_t r : {1U, 2U, 3U}) {
    CAPTURE(r);
    CHECK(std::isnan(losses[r]));
    CHECK(std::isnan(to_number(gradient_row<TestType>(d, logits, r)[d.targets[r]])));
  }
}

TEST_CASE("many rows' losses are added in their order") {
  for (const std::size_t rows : {1U, 255U, 4096U, 4097U, 9000U}) {
    CAPTURE(rows);
    // Of sizes so different that FP64 sums depend on the order.
    auto losses = random_values<float>(rows, rows);
    for (std::size_t i = 0; i < rows; ++i)
      losses[i] = std::ldexp(losses[i], static_cast<int>(i * 7 % 101) - 50);
    double want = 0;
    for (const float loss : losses)
      want += static_cast<double>(loss);
    std::vector<double> sum{0.3};
    run_in_all_orders<SumLosses>(SumLosses::grid(), {losses.data(), sum.data(), rows},
                                 {written(sum)});
    CHECK(sum[0] == 0.3 + want);
  }
}

}  // namespace muster::runtime::cuda
