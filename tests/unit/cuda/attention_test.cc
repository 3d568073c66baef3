// SPDX-License-Identifier: Apache-2.0
//
// Attention kernels against FP64 within the bounds of attention_reference.h, which is in turn
// checked against finite differences. Arrays stand between guards of NaN, outputs start as NaN.
#include "worker_runtime/cuda/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/cuda/attention_reference.h"
#include "tests/unit/cuda/orders.h"
#include "tests/unit/numerics/random.h"
#include "worker_runtime/cpu/kernels.h"
#include "worker_runtime/cuda/kernels/attention_backward.h"
#include "worker_runtime/cuda/kernels/attention_plain.h"

namespace muster::runtime::cuda {
namespace {

template <class S>
reference::Format format_of() {
  if constexpr (std::is_same_v<S, Bf16>) return {0x1p-8, 0x1p-134};
  if constexpr (std::is_same_v<S, F16>) return {0x1p-11, 0x1p-25};
  return {0x1p-24, 0x1p-150};
}

// `count` numbers with NaN in front and behind; with no guard, where ASan stands guard.
template <class S>
class Guarded {
 public:
  Guarded(std::size_t count, std::size_t guard)
      : guard_(guard), all_(count + 2 * guard, stored<S>(std::nanf(""))) {}
  Guarded(const std::vector<S>& values, std::size_t guard) : Guarded(values.size(), guard) {
    std::copy(values.begin(), values.end(), data());
  }
  S* data() { return all_.data() + guard_; }
  std::vector<S>& all() { return all_; }
  std::vector<S> values() const {
    return {all_.begin() + static_cast<std::ptrdiff_t>(guard_),
            all_.end() - static_cast<std::ptrdiff_t>(guard_)};
  }
  bool guards_hold() const {
    for (std::size_t i = 0; i < guard_; ++i) {
      if (!std::isnan(to_number(all_[i])) || !std::isnan(to_number(all_[all_.size() - 1 - i])))
        return false;
    }
    return true;
  }

 private:
  std::size_t guard_;
  std::vector<S> all_;
};

template <class S>
struct Input {
  std::size_t batch, time, heads, head_size;
  std::vector<S> qkv, d_out;

  // `peak` scales the queries, and so the logits.
  Input(std::size_t batch_, std::size_t heads_, std::size_t time_, std::size_t head_size_,
        std::uint64_t seed, float peak = 1)
      : batch(batch_),
        time(time_),
        heads(heads_),
        head_size(head_size_),
        qkv(random_values<S>(batch * time * 3 * heads * head_size, seed)),
        d_out(random_values<S>(batch * time * heads * head_size, seed + 1)) {
    const std::size_t width = heads * head_size;
    for (std::size_t i = 0; i < qkv.size(); ++i) {
      if (i % (3 * width) < width) qkv[i] = stored<S>(to_number(qkv[i]) * peak);
    }
  }
  AttentionSize size() const {
    return {static_cast<unsigned>(time), static_cast<unsigned>(heads),
            static_cast<unsigned>(head_size)};
  }
  AttentionProblem problem() const {
    AttentionProblem p{batch, time, heads, head_size, {}, {}};
    for (const S x : qkv)
      p.qkv.push_back(static_cast<double>(to_number(x)));
    for (const S x : d_out)
      p.d_out.push_back(static_cast<double>(to_number(x)));
    return p;
  }
};

template <class S>
struct Output {
  std::vector<S> out, d_qkv;
  std::vector<float> lse;
};

template <class S, unsigned kHead>
struct TensorKernels {
  using Forward = Attention<S, kHead>;
  using KeyGradients = AttentionKeyGradients<S, kHead>;
  using QueryGradient = AttentionQueryGradient<S, kHead>;
  static Grid grid(const AttentionSize& size, unsigned batch) {
    return attention_grid(size, batch);
  }
};
template <class S>
struct PlainKernels {
  using Forward = PlainAttention<S>;
  using KeyGradients = PlainKeyGradients<S>;
  using QueryGradient = PlainQueryGradient<S>;
  static Grid grid(const AttentionSize& size, unsigned batch) {
    return plain_attention_grid(size, batch);
  }
};

// Forward and backward, in all orders.
template <class Family, class S>
Output<S> run_attention(const Input<S>& in, std::size_t guard = 64) {
  const unsigned batch = static_cast<unsigned>(in.batch);
  const AttentionSize size = in.size();
  const Grid grid = Family::grid(size, batch);
  const std::size_t rows = in.batch * in.heads * in.time;
  Guarded<S> qkv(in.qkv, guard), d_out(in.d_out, guard);
  Guarded<S> out(in.d_out.size(), guard), d_qkv(in.qkv.size(), guard);
  Guarded<float> lse(rows, guard), dots(rows, guard);
  run_in_all_orders<typename Family::Forward>(grid, {qkv.data(), out.data(), lse.data(), size},
                                              {written(out.all()), written(lse.all())});
  run_in_all_orders<AttentionDots<S>>(
      AttentionDots<S>::grid(size, batch),
      {out.data(), d_out.data(), dots.data(), size, static_cast<unsigned>(rows)},
      {written(dots.all())});
  const AttentionBackwardArgs<S> backward{qkv.data(),  d_out.data(), lse.data(),
                                          dots.data(), d_qkv.data(), size};
  run_in_all_orders<typename Family::KeyGradients>(grid, backward, {written(d_qkv.all())});
  run_in_all_orders<typename Family::QueryGradient>(grid, backward, {written(d_qkv.all())});
  CHECK((out.guards_hold() && d_qkv.guards_hold() && lse.guards_hold() && dots.guards_hold()));
  return {out.values(), d_qkv.values(), lse.values()};
}

// The worst error in units of its bound; infinite where a number is NaN.
template <class S>
double worst(const std::vector<S>& got, const Bounded& want) {
  REQUIRE(got.size() == want.value.size());
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double off = std::abs(static_cast<double>(to_number(got[i])) - want.value[i]);
    most = std::max(most, std::isnan(off) ? HUGE_VAL : off / want.bound[i]);
  }
  return most;
}

// The length of all errors over the length of the reference.
template <class S>
double relative_error(const std::vector<S>& got, const Bounded& want) {
  double off = 0;
  double all = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    off += std::pow(static_cast<double>(to_number(got[i])) - want.value[i], 2);
    all += std::pow(want.value[i], 2);
  }
  return std::sqrt(off / all);
}

template <class S>
AttentionReference check_output(const Input<S>& in, const Output<S>& got) {
  AttentionReference want = attention_reference(in.problem(), format_of<S>());
  CHECK(worst(got.out, want.out) <= 1);
  CHECK(worst(got.lse, want.lse) <= 1);
  CHECK(worst(got.d_qkv, want.d_qkv) <= 1);
  return want;
}

// Where logits are moderate, errors of random sign average out: all in all less than one rounding
// in the forward pass, and less than two in the backward pass.
template <class S>
void check_moderate(const Input<S>& in, const Output<S>& got) {
  const AttentionReference want = check_output(in, got);
  const double floor = static_cast<double>(in.head_size + in.time) * reference::kFloat;
  CHECK(relative_error(got.out, want.out) <= format_of<S>().unit + floor);
  // One token's logit has no gradient: there is nothing to compare lengths with.
  if (in.time > 1) CHECK(relative_error(got.d_qkv, want.d_qkv) <= 2 * format_of<S>().unit + floor);
}

struct Shape {
  std::size_t batch, heads, time;
};
// Around the edges of a warp's sixteen rows, of tiles of 32 and 64, and of plain blocks of four.
const Shape kShapes[] = {{1, 1, 1},  {1, 2, 2},   {2, 1, 15},  {1, 2, 16},  {1, 1, 17},
                         {2, 3, 33}, {1, 1, 63},  {1, 1, 64},  {2, 2, 65},  {1, 1, 96},
                         {1, 1, 97}, {2, 1, 127}, {1, 1, 128}, {1, 2, 130}, {1, 1, 193}};

std::vector<Shape> shapes(std::uint64_t seed) {
  std::vector<Shape> all(std::begin(kShapes), std::end(kShapes));
  for (std::uint64_t i = 0; i < 6; ++i) {
    all.push_back({random_size(seed, 3 * i, 3), random_size(seed, 3 * i + 1, 3),
                   random_size(seed, 3 * i + 2, 200)});
  }
  return all;
}

template <class S, unsigned kHead>
void check_tensor_shapes() {
  std::uint64_t seed = kHead;
  for (const Shape& shape : shapes(75 + kHead)) {
    CAPTURE(kHead, shape.batch, shape.heads, shape.time);
    const Input<S> in(shape.batch, shape.heads, shape.time, kHead, seed += 2);
    check_moderate(in, run_attention<TensorKernels<S, kHead>>(in));
  }
  // Nothing beyond an array is read: this is for ASan.
  for (const std::size_t time : {1U, 31U, 65U}) {
    const Input<S> in(1, 1, time, kHead, seed += 2);
    check_moderate(in, run_attention<TensorKernels<S, kHead>>(in, 0));
  }
}

template <class S, unsigned kHead>
void check_large_logits() {
  for (const float peak : {12.0F, 3000.0F}) {
    CAPTURE(kHead, peak);
    const Input<S> in(1, 1, 100, kHead, 5, peak);
    check_output(in, run_attention<TensorKernels<S, kHead>>(in));
    if (kHead == 64) check_output(in, run_attention<PlainKernels<S>>(in));
  }
}

// One head of one sequence alone, and in the midst of others that are all NaN.
template <class Family, class S>
void check_apart(std::size_t head_size) {
  const Input<S> alone(1, 1, 70, head_size, 11);
  Input<S> among(2, 2, 70, head_size, 12);
  std::fill(among.qkv.begin(), among.qkv.end(), stored<S>(std::nanf("")));
  std::fill(among.d_out.begin(), among.d_out.end(), stored<S>(std::nanf("")));
  const AttentionProblem place = among.problem();
  const AttentionProblem small = alone.problem();
  for (std::size_t t = 0; t < alone.time; ++t) {
    for (std::size_t d = 0; d < head_size; ++d) {
      among.d_out[place.out_at(1, t, 0) + d] = alone.d_out[small.out_at(0, t, 0) + d];
      for (std::size_t part = 0; part < 3; ++part)
        among.qkv[place.at(1, t, 0, part) + d] = alone.qkv[small.at(0, t, 0, part) + d];
    }
  }
  const Output<S> want = run_attention<Family>(alone);
  const Output<S> got = run_attention<Family>(among);
  bool same = true;
  for (std::size_t t = 0; t < alone.time; ++t) {
    same = same && got.lse[2 * alone.time + t] == want.lse[t];
    for (std::size_t d = 0; d < head_size; ++d) {
      same = same && to_number(got.out[place.out_at(1, t, 0) + d]) ==
                         to_number(want.out[small.out_at(0, t, 0) + d]);
      for (std::size_t part = 0; part < 3; ++part)
        same = same && to_number(got.d_qkv[place.at(1, t, 0, part) + d]) ==
                           to_number(want.d_qkv[small.at(0, t, 0, part) + d]);
    }
  }
  CHECK(same);
}

// Later tokens change nothing in earlier rows, not a bit.
template <class Family, class S>
void check_causal(std::size_t head_size) {
  Input<S> in(1, 1, 100, head_size, 21);
  const Output<S> before = run_attention<Family>(in);
  const std::size_t first_changed = 67;
  for (std::size_t i = first_changed * 3 * head_size; i < in.qkv.size(); ++i)
    in.qkv[i] = stored<S>(-2 * to_number(in.qkv[i]));
  const Output<S> after = run_attention<Family>(in);
  const auto same_until = [&](const auto& a, const auto& b, std::size_t count) {
    return std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count), b.begin(),
                      [](auto x, auto y) { return to_number(x) == to_number(y); });
  };
  CHECK(same_until(before.lse, after.lse, first_changed));
  CHECK(same_until(before.out, after.out, first_changed * head_size));
  CHECK_FALSE(same_until(before.out, after.out, (first_changed + 1) * head_size));
}

template <class S>
Output<S> run_cpu(const Input<S>& in) {
  const Kernels<S>& cpu = kernels<S>(Isa::kPortable);
  const AttentionShape shape{in.time, in.heads, in.head_size};
  std::vector<float> stats(in.heads * in.time * 2), scratch(attention_scratch(shape));
  std::vector<float> d_out(in.d_out.size());
  cpu.widen(in.d_out.data(), d_out.data(), d_out.size());
  Output<S> got{std::vector<S>(in.d_out.size()), std::vector<S>(in.qkv.size()), {}};
  cpu.attention(shape, in.qkv.data(), got.out.data(), stats.data(), scratch.data());
  cpu.attention_backward(shape, in.qkv.data(), stats.data(), d_out.data(), got.d_qkv.data(),
                         scratch.data());
  for (std::size_t row = 0; row < in.heads * in.time; ++row)
    got.lse.push_back(stats[2 * row] - numerics::log(stats[2 * row + 1]));
  return got;
}

// Loss = sum of out * d_out.
double loss_of(const AttentionProblem& p) {
  const AttentionReference r = attention_reference(p, format_of<float>());
  double loss = 0;
  for (std::size_t i = 0; i < p.d_out.size(); ++i)
    loss += r.out.value[i] * p.d_out[i];
  return loss;
}

}  // namespace

TEST_CASE("the reference's gradient is that of finite differences") {
  AttentionProblem p = Input<float>(2, 2, 5, 3, 1).problem();
  const AttentionReference r = attention_reference(p, format_of<float>());
  const double step = 1e-5;  // the error of a central difference is of the order of its square
  for (std::size_t i = 0; i < p.qkv.size(); ++i) {
    const double x = p.qkv[i];
    p.qkv[i] = x + step;
    const double up = loss_of(p);
    p.qkv[i] = x - step;
    const double down = loss_of(p);
    p.qkv[i] = x;
    CHECK(std::abs((up - down) / (2 * step) - r.d_qkv.value[i]) < 1e-8);
  }
}

TEMPLATE_TEST_CASE("attention on tensor cores is within its roundings of FP64", "", Bf16, F16) {
  check_tensor_shapes<TestType, 64>();
  check_tensor_shapes<TestType, 128>();
}

TEMPLATE_TEST_CASE("plain attention takes every head size and format", "", float, Bf16, F16) {
  std::uint64_t seed = 300;
  for (const std::size_t head_size : {1U, 3U, 16U, 31U, 33U, 64U, 80U, 256U}) {
    for (const Shape& shape : {Shape{1, 1, 1}, Shape{2, 3, 5}, Shape{1, 2, 34}}) {
      CAPTURE(head_size, shape.batch, shape.heads, shape.time);
      const Input<TestType> in(shape.batch, shape.heads, shape.time, head_size, seed += 2);
      check_moderate(in, run_attention<PlainKernels<TestType>>(in, shape.time == 5 ? 0 : 64));
    }
  }
}

TEMPLATE_TEST_CASE("large logits overflow nowhere", "", Bf16, F16) {
  check_large_logits<TestType, 64>();
  check_large_logits<TestType, 128>();
}

TEMPLATE_TEST_CASE("heads and sequences are apart", "", Bf16, F16) {
  check_apart<TensorKernels<TestType, 64>, TestType>(64);
  check_apart<TensorKernels<TestType, 128>, TestType>(128);
  check_apart<PlainKernels<TestType>, TestType>(20);
}

TEMPLATE_TEST_CASE("attention is causal", "", Bf16, F16) {
  check_causal<TensorKernels<TestType, 64>, TestType>(64);
  check_causal<TensorKernels<TestType, 128>, TestType>(128);
  check_causal<PlainKernels<TestType>, TestType>(20);
}

// The CPU's kernels keep to the same bounds, so both are within twice of one another.
TEMPLATE_TEST_CASE("attention agrees with the CPU's", "", float, Bf16, F16) {
  for (const std::size_t head_size : {20U, 64U, 128U}) {
    CAPTURE(head_size);
    const Input<TestType> in(1, 1, 70, head_size, 41);
    check_moderate(in, run_cpu(in));
    check_moderate(in, run_attention<PlainKernels<TestType>>(in));
  }
}

TEST_CASE("a block's shared memory") {
  CHECK(shared_bytes<Attention<Bf16, 64>> == 36864);
  CHECK(shared_bytes<Attention<Bf16, 128>> == 69632);
  CHECK(shared_bytes<AttentionKeyGradients<Bf16, 64>> == 56320);
  CHECK(shared_bytes<AttentionKeyGradients<Bf16, 128>> == 70144);
  CHECK(shared_bytes<AttentionQueryGradient<Bf16, 64>> == 55296);
  CHECK(shared_bytes<AttentionQueryGradient<Bf16, 128>> == 69632);
}

}  // namespace muster::runtime::cuda
