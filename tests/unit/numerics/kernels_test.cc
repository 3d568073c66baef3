// SPDX-License-Identifier: Apache-2.0
//
// Every kernel: the same bits on every instruction set this machine has, FP32 close to FP64, and
// gradients (FP64) equal to finite differences.
#include "worker_runtime/cpu/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/numerics/random.h"

namespace muster::runtime {
namespace {

struct Shape {
  std::size_t rows, width, heads, head_size;
};
// Widths below, at and beside multiples of sixteen; rows across the row block of 64.
const Shape kShapes[] = {
    {1, 1, 1, 1}, {5, 14, 2, 7}, {16, 16, 1, 16}, {70, 33, 3, 11}, {130, 80, 4, 20}};

// Everything that the kernels of S compute from one seed, as raw outputs by name.
template <class S>
struct Outputs {
  using A = Accumulator<S>;
  std::vector<std::vector<S>> stored;
  std::vector<std::vector<A>> wide;
  std::vector<double> losses;
  bool operator==(const Outputs& other) const {
    for (std::size_t i = 0; i < stored.size(); ++i) {
      if (!same_bits(stored[i], other.stored[i])) return false;
    }
    for (std::size_t i = 0; i < wide.size(); ++i) {
      if (!same_bits(wide[i], other.wide[i])) return false;
    }
    return losses == other.losses;
  }
};

template <class S>
void run_pointwise(const Kernels<S>& k, const Shape& s, Outputs<S>& out) {
  using A = Accumulator<S>;
  const std::size_t count = s.rows * s.width;
  const auto product = random_values<A>(count, 1, 3);
  const auto row = random_values<A>(s.width, 2);
  const auto residual = random_values<S>(count, 3, 2);
  std::vector<S> a(count), b(count), c(count), d(count), e(count);
  k.bias(product.data(), row.data(), a.data(), s.rows, s.width);
  k.bias_residual(product.data(), row.data(), residual.data(), b.data(), s.rows, s.width);
  k.bias_gelu(product.data(), row.data(), c.data(), d.data(), s.rows, s.width);
  k.gelu_backward(product.data(), residual.data(), e.data(), count);
  std::vector<A> sums = row;
  k.column_sums(residual.data(), sums.data(), s.rows, s.width);
  std::vector<A> widened(count);
  k.widen(residual.data(), widened.data(), count);
  k.add(product.data(), widened.data(), count);
  for (auto* v : {&a, &b, &c, &d, &e})
    out.stored.push_back(std::move(*v));
  out.wide.push_back(std::move(sums));
  out.wide.push_back(std::move(widened));
}

template <class S>
void run_norm(const Kernels<S>& k, const Shape& s, Outputs<S>& out) {
  using A = Accumulator<S>;
  const std::size_t count = s.rows * s.width;
  const auto x = random_values<S>(count, 4, 2);
  const auto weight = random_values<A>(s.width, 5);
  const auto bias = random_values<A>(s.width, 6);
  const auto dy = random_values<A>(count, 7);
  std::vector<S> y(count), dx = random_values<S>(count, 8), replaced(count);
  std::vector<A> mean(s.rows), rstd(s.rows), dweight(s.width), dbias(s.width);
  std::vector<A> scratch(2 * s.width);
  k.layernorm(x.data(), weight.data(), bias.data(), y.data(), mean.data(), rstd.data(), s.rows,
              s.width);
  k.layernorm_backward(x.data(), weight.data(), mean.data(), rstd.data(), dy.data(), false,
                       dx.data(), dweight.data(), dbias.data(), scratch.data(), s.rows, s.width);
  k.layernorm_backward(x.data(), weight.data(), mean.data(), rstd.data(), dy.data(), true,
                       replaced.data(), dweight.data(), dbias.data(), scratch.data(), s.rows,
                       s.width);
  for (auto* v : {&y, &dx, &replaced})
    out.stored.push_back(std::move(*v));
  for (auto* v : {&mean, &rstd, &dweight, &dbias})
    out.wide.push_back(std::move(*v));
}

template <class S>
void run_attention(const Kernels<S>& k, const Shape& s, Outputs<S>& out) {
  using A = Accumulator<S>;
  const AttentionShape shape{s.rows, s.heads, s.head_size};
  const std::size_t width = s.heads * s.head_size;
  const auto qkv = random_values<S>(s.rows * 3 * width, 9);
  const auto dout = random_values<A>(s.rows * width, 10);
  std::vector<S> y(s.rows * width), dqkv(s.rows * 3 * width);
  std::vector<A> stats(2 * s.rows * s.heads), scratch(attention_scratch(shape));
  k.attention(shape, qkv.data(), y.data(), stats.data(), scratch.data());
  k.attention_backward(shape, qkv.data(), stats.data(), dout.data(), dqkv.data(), scratch.data());
  out.stored.push_back(std::move(y));
  out.stored.push_back(std::move(dqkv));
  out.wide.push_back(std::move(stats));
}

template <class S>
void run_ends(const Kernels<S>& k, const Shape& s, Outputs<S>& out) {
  using A = Accumulator<S>;
  const std::size_t vocabulary = s.width + 2;
  const std::size_t stride = s.rows + 1;
  const auto tokens = random_tokens(2 * stride, 11, static_cast<std::int64_t>(vocabulary));
  const auto wte = random_values<A>(vocabulary * s.width, 12);
  const auto wpe = random_values<A>(s.rows * s.width, 13);
  std::vector<S> x(2 * s.rows * s.width);
  k.embed(tokens.data(), stride, wte.data(), wpe.data(), x.data(), 2, s.rows, s.width);
  std::vector<A> dwte = wte, dwpe = wpe;
  k.embed_backward(tokens.data(), stride, x.data(), dwte.data(), dwpe.data(), 2, s.rows, s.width);
  auto logits = random_values<A>(2 * s.rows * vocabulary, 14, 4);
  std::vector<S> dlogits(logits.size());
  out.losses.push_back(k.cross_entropy(logits.data(), tokens.data() + 1, stride, s.rows, 0,
                                       2 * s.rows, vocabulary, A{16}, dlogits.data()));
  const auto a = random_values<A>(s.rows * s.width, 15);
  const auto b = random_values<A>(s.width * s.rows, 16);
  std::vector<A> c(s.rows * s.rows), scratch((s.width + 4) * (s.rows + 16));
  k.product(false, false, false, s.rows, s.rows, s.width, a.data(), s.width, b.data(), s.rows,
            c.data(), scratch.data());
  k.product(true, true, true, s.rows, s.rows, s.width, b.data(), s.rows, a.data(), s.width,
            c.data(), scratch.data());
  out.stored.push_back(std::move(x));
  out.stored.push_back(std::move(dlogits));
  for (auto* v : {&dwte, &dwpe, &c})
    out.wide.push_back(std::move(*v));
}

template <class S>
Outputs<S> run_all(Isa isa, const Shape& shape) {
  const Kernels<S>& k = kernels<S>(isa);
  Outputs<S> out;
  run_pointwise(k, shape, out);
  run_norm(k, shape, out);
  run_attention(k, shape, out);
  run_ends(k, shape, out);
  return out;
}

TEMPLATE_TEST_CASE("all instruction sets give the same bits", "", float, Bf16, F16) {
  for (const Shape& shape : kShapes) {
    const auto portable = run_all<TestType>(Isa::kPortable, shape);
    for (const Isa isa : supported_isas()) {
      CAPTURE(isa_name(isa), shape.rows, shape.width);
      CHECK(run_all<TestType>(isa, shape) == portable);
    }
  }
}

double value(float x) {
  return static_cast<double>(x);
}
double value(Bf16 x) {
  return static_cast<double>(numerics::to_float(x));
}
double value(F16 x) {
  return static_cast<double>(numerics::to_float(x));
}

// Largest difference between what S and FP64 kernels compute, relative to the largest element.
template <class T>
double distance(const std::vector<std::vector<T>>& got,
                const std::vector<std::vector<double>>& exact) {
  double worst = 0;
  REQUIRE(got.size() == exact.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    double largest = 1;
    for (const double x : exact[i])
      largest = std::max(largest, std::fabs(x));
    for (std::size_t j = 0; j < got[i].size(); ++j)
      worst = std::max(worst, std::fabs(value(got[i][j]) - exact[i][j]) / largest);
  }
  return worst;
}

TEST_CASE("kernels in FP32 agree with FP64, in 16 bits within their rounding") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.rows, shape.width);
    const auto exact = run_all<double>(Isa::kPortable, shape);
    const auto single = run_all<float>(best_isa(), shape);
    CHECK(distance(single.stored, exact.stored) < 3e-6);
    CHECK(distance(single.wide, exact.wide) < 3e-6);
    CHECK(single.losses[0] == Approx(exact.losses[0]).epsilon(1e-6));
    // Inputs are rounded to 16 bits too, hence several roundings' worth.
    CHECK(distance(run_all<F16>(best_isa(), shape).stored, exact.stored) < 8e-3);
    CHECK(distance(run_all<Bf16>(best_isa(), shape).stored, exact.stored) < 6e-2);
  }
}

TEST_CASE("an epilogue rounds once") {
  const Kernels<Bf16>& k = kernels<Bf16>(best_isa());
  const auto product = random_values<float>(50, 1);
  const auto bias = random_values<float>(50, 2);
  const auto residual = random_values<Bf16>(50, 3);
  std::vector<Bf16> out(50);
  k.bias_residual(product.data(), bias.data(), residual.data(), out.data(), 1, 50);
  for (std::size_t i = 0; i < 50; ++i) {
    const float exact = numerics::to_float(residual[i]) + (product[i] + bias[i]);
    CHECK(out[i].bits == numerics::to_bf16(exact).bits);
  }
}

// Attention over two positions and one channel, written out: which values are rounded to S, and
// that nothing else is.
template <class S>
float kept(float x) {
  S stored{};
  kernels<S>(Isa::kPortable).narrow(&x, &stored, 1);
  return numerics::to_float(stored);
}

TEMPLATE_TEST_CASE("attention rounds probabilities, their gradients and results, once each", "",
                   Bf16, F16) {
  using S = TestType;
  const Kernels<S>& k = kernels<S>(best_isa());
  const AttentionShape shape{2, 1, 1};
  std::vector<float> scratch(attention_scratch(shape)), stats(4), dout;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto qkv = random_values<S>(6, seed);
    dout = random_values<float>(2, seed + 1000);
    std::vector<S> y(2), d(6);
    k.attention(shape, qkv.data(), y.data(), stats.data(), scratch.data());
    k.attention_backward(shape, qkv.data(), stats.data(), dout.data(), d.data(), scratch.data());
    const auto in = [&](std::size_t i) { return numerics::to_float(qkv[i]); };
    const float q = in(3), k0 = in(1), k1 = in(4), v0 = in(2), v1 = in(5);
    const float s0 = q * k0, s1 = q * k1;
    const float e0 = numerics::exp(s0 - std::max(s0, s1));
    const float e1 = numerics::exp(s1 - std::max(s0, s1));
    const float p0 = e0 * (1.0F / (e0 + e1)), p1 = e1 * (1.0F / (e0 + e1));
    REQUIRE(numerics::to_float(y[1]) ==
            kept<S>(numerics::multiply_add(kept<S>(p1), v1, kept<S>(p0) * v0)));
    const float g0 = kept<S>(dout[0]), g1 = kept<S>(dout[1]);
    const float mean = p0 * (g1 * v0) + p1 * (g1 * v1);
    const float d0 = kept<S>(p0 * (g1 * v0 - mean)), d1 = kept<S>(p1 * (g1 * v1 - mean));
    CHECK(numerics::to_float(d[3]) == kept<S>(numerics::multiply_add(d1, k1, d0 * k0)));
    CHECK(numerics::to_float(d[1]) == kept<S>(d0 * q));
    CHECK(numerics::to_float(d[2]) == kept<S>(numerics::multiply_add(kept<S>(p0), g1, g0)));
  }
}

// Checks `gradient` of sum(f(x) * direction) against central differences in every element.
void check_gradient(std::vector<double> x, const std::vector<double>& gradient,
                    const std::function<double(const std::vector<double>&)>& f) {
  constexpr double kStep = 1e-5;
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double middle = x[i];
    x[i] = middle + kStep;
    const double up = f(x);
    x[i] = middle - kStep;
    const double down = f(x);
    x[i] = middle;
    worst = std::max(worst, std::fabs((up - down) / (2 * kStep) - gradient[i]));
  }
  CHECK(worst < 1e-7);
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

TEST_CASE("LayerNorm backward equals finite differences") {
  const Kernels<double>& k = kernels<double>(Isa::kPortable);
  const std::size_t rows = 3;
  const std::size_t width = 21;
  const auto x = random_values<double>(rows * width, 1, 2);
  const auto w = random_values<double>(width, 2);
  const auto b = random_values<double>(width, 3);
  const auto dy = random_values<double>(rows * width, 4);
  std::vector<double> y(x.size()), mean(rows), rstd(rows), dx(x.size()), dw(width), db(width),
      scratch(2 * width);
  const auto forward = [&](const std::vector<double>& xs, const std::vector<double>& ws,
                           const std::vector<double>& bs) {
    k.layernorm(xs.data(), ws.data(), bs.data(), y.data(), mean.data(), rstd.data(), rows, width);
    return dot(y, dy);
  };
  forward(x, w, b);
  k.layernorm_backward(x.data(), w.data(), mean.data(), rstd.data(), dy.data(), true, dx.data(),
                       dw.data(), db.data(), scratch.data(), rows, width);
  check_gradient(x, dx, [&](const auto& v) { return forward(v, w, b); });
  check_gradient(w, dw, [&](const auto& v) { return forward(x, v, b); });
  check_gradient(b, db, [&](const auto& v) { return forward(x, w, v); });
}

TEST_CASE("GELU backward equals finite differences") {
  const Kernels<double>& k = kernels<double>(Isa::kPortable);
  const auto x = random_values<double>(37, 1, 2);
  const auto dy = random_values<double>(37, 2);
  const std::vector<double> zero(37);
  std::vector<double> pre(37), act(37), dx(37);
  k.gelu_backward(dy.data(), x.data(), dx.data(), 37);
  check_gradient(x, dx, [&](const auto& v) {
    k.bias_gelu(v.data(), zero.data(), pre.data(), act.data(), 1, 37);
    return dot(act, dy);
  });
}

TEST_CASE("attention backward equals finite differences") {
  const Kernels<double>& k = kernels<double>(Isa::kPortable);
  for (const AttentionShape& shape : {AttentionShape{1, 1, 1}, AttentionShape{5, 2, 3},
                                      AttentionShape{37, 1, 2}, AttentionShape{18, 2, 17}}) {
    CAPTURE(shape.time, shape.heads, shape.head_size);
    const std::size_t width = shape.heads * shape.head_size;
    const auto qkv = random_values<double>(shape.time * 3 * width, 1);
    const auto dy = random_values<double>(shape.time * width, 2);
    std::vector<double> y(dy.size()), stats(2 * shape.time * shape.heads), dqkv(qkv.size()),
        scratch(attention_scratch(shape));
    const auto forward = [&](const std::vector<double>& v) {
      k.attention(shape, v.data(), y.data(), stats.data(), scratch.data());
      return dot(y, dy);
    };
    forward(qkv);
    k.attention_backward(shape, qkv.data(), stats.data(), dy.data(), dqkv.data(), scratch.data());
    check_gradient(qkv, dqkv, forward);
  }
}

TEST_CASE("cross-entropy backward equals finite differences") {
  const Kernels<double>& k = kernels<double>(Isa::kPortable);
  const std::size_t rows = 4;
  const std::size_t vocabulary = 19;
  const auto logits = random_values<double>(rows * vocabulary, 1, 3);
  const std::vector<std::int32_t> targets = {-1, 3, 18, -1, 0, 3};  // two sequences of two
  std::vector<double> gradient(logits.size());
  const auto forward = [&](std::vector<double> v, double* out) {
    return k.cross_entropy(v.data(), targets.data() + 1, 3, 2, 0, rows, vocabulary, 2.5, out);
  };
  forward(logits, gradient.data());
  check_gradient(logits, gradient, [&](const auto& v) { return 2.5 * forward(v, nullptr); });
}

TEST_CASE("attention never looks ahead and survives huge scores") {
  const AttentionShape shape{40, 1, 4};
  const Kernels<float>& k = kernels<float>(best_isa());
  auto qkv = random_values<float>(40 * 12, 1, 1e3F);
  std::vector<float> y(160), stats(80), scratch(attention_scratch(shape));
  k.attention(shape, qkv.data(), y.data(), stats.data(), scratch.data());
  const std::vector<float> before = y;
  for (std::size_t i = 20 * 12; i < qkv.size(); ++i)
    qkv[i] = -3 * qkv[i];
  k.attention(shape, qkv.data(), y.data(), stats.data(), scratch.data());
  CHECK(std::memcmp(y.data(), before.data(), 20 * 4 * sizeof(float)) == 0);
  CHECK(std::memcmp(y.data() + 80, before.data() + 80, 80 * sizeof(float)) != 0);
  for (const float x : y)
    REQUIRE(std::isfinite(x));
}

}  // namespace
}  // namespace muster::runtime
