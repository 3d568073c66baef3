// SPDX-License-Identifier: Apache-2.0
//
// Loss scaler and learning rate schedules against references written from DeepSpeed's rules.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <catch2/catch.hpp>

#include "worker_runtime/numerics/philox.h"
#include "worker_runtime/numerics/scaler.h"
#include "worker_runtime/numerics/schedule.h"

namespace muster::runtime {
namespace {

using numerics::scaler_start;
using numerics::scaler_update;

// The scale after a history of overflow flags, by replaying the rules on the whole history.
// Returns a negative number where the run would have ended.
double replay(const ScalerOptions& o, const std::vector<bool>& history) {
  double scale = std::pow(2.0, o.initial_scale_power);
  std::int64_t credit = o.hysteresis;
  std::int64_t clean_run = 0;  // clean steps since the last overflow
  for (const bool overflow : history) {
    if (overflow) {
      clean_run = 0;
      if (credit > 1) {
        --credit;
      } else if (scale == o.min_loss_scale) {
        return -1;
      } else {
        scale = std::max(scale / 2, o.min_loss_scale);
      }
      continue;
    }
    if (o.consecutive_hysteresis) credit = o.hysteresis;
    // Iterations count from -1 before the first overflow, so growth comes after window + 1 clean
    // steps in either case; later growths every window.
    ++clean_run;
    if (clean_run > 1 && (clean_run - 1) % o.loss_scale_window == 0) {
      credit = o.hysteresis;
      scale *= 2;
    }
  }
  return scale;
}

TEST_CASE("dynamic loss scale follows DeepSpeed on random histories") {
  for (std::uint64_t trial = 0; trial < 400; ++trial) {
    const auto draw = [&](std::uint64_t what) { return numerics::philox(trial, what, 0).word[0]; };
    ScalerOptions o;
    o.initial_scale_power = static_cast<int>(draw(0) % 17);
    o.loss_scale_window = 1 + draw(1) % 6;
    o.hysteresis = 1 + draw(2) % 4;
    o.consecutive_hysteresis = draw(3) % 2 == 0;
    o.min_loss_scale = draw(4) % 2 == 0 ? 1 : 0.25;
    const std::uint32_t rate = 2 + draw(5) % 9;
    ScalerState state = scaler_start(o);
    std::vector<bool> history;
    for (std::uint64_t step = 0; step < 60; ++step) {
      history.push_back(draw(100 + step) % rate == 0);
      const ScalerOutcome outcome = scaler_update(o, state, history.back());
      const double expected = replay(o, history);
      if (expected < 0) {
        REQUIRE(outcome == ScalerOutcome::kStuck);
        break;
      }
      REQUIRE(outcome == (history.back() ? ScalerOutcome::kSkip : ScalerOutcome::kStep));
      REQUIRE(state.scale == expected);
    }
  }
}

TEST_CASE("the default scaler: 2^16, one free overflow, then halves, stuck at the floor") {
  const ScalerOptions o;
  ScalerState state = scaler_start(o);
  CHECK(state.scale == 65536);
  CHECK(scaler_update(o, state, true) == ScalerOutcome::kSkip);
  CHECK(state.scale == 65536);
  for (int i = 0; i < 16; ++i)
    CHECK(scaler_update(o, state, true) == ScalerOutcome::kSkip);
  CHECK(state.scale == 1);
  CHECK(scaler_update(o, state, true) == ScalerOutcome::kStuck);
  CHECK(state.scale == 1);
  // 1001 clean steps double it and refill the hysteresis.
  for (int i = 0; i < 1000; ++i)
    CHECK(scaler_update(o, state, false) == ScalerOutcome::kStep);
  CHECK(state.scale == 1);
  CHECK(scaler_update(o, state, false) == ScalerOutcome::kStep);
  CHECK(state.scale == 2);
  CHECK(state.hysteresis == 2);
}

TEST_CASE("a saved scaler continues as if never interrupted") {
  ScalerOptions o;
  o.loss_scale_window = 3;
  ScalerState whole = scaler_start(o);
  ScalerState resumed = scaler_start(o);
  for (int i = 0; i < 40; ++i) {
    const bool overflow = i % 7 == 0;
    scaler_update(o, whole, overflow);
    ScalerState loaded;  // what a checkpoint keeps
    loaded.scale = resumed.scale;
    loaded.iterations = resumed.iterations;
    loaded.last_overflow = resumed.last_overflow;
    loaded.hysteresis = resumed.hysteresis;
    scaler_update(o, loaded, overflow);
    resumed = loaded;
    REQUIRE(resumed == whole);
  }
}

TEST_CASE("a fixed scale never moves; a dynamic one ends before infinity") {
  ScalerOptions fixed;
  fixed.loss_scale = 128;
  ScalerState state = scaler_start(fixed);
  for (int i = 0; i < 5000; ++i)
    scaler_update(fixed, state, i % 3 == 0);
  CHECK(state.scale == 128);
  CHECK(state.iterations == 5000);
  ScalerOptions eager;
  eager.loss_scale_window = 1;
  ScalerState high = scaler_start(eager);
  for (int i = 0; i < 1000; ++i)
    scaler_update(eager, high, false);
  CHECK(high.scale == kMaxLossScale);
}

TEST_CASE("constant and WarmupLR schedules") {
  Schedule s;
  s.base_rate = 0.5;
  CHECK(learning_rate(s, 0) == 0.5);
  CHECK(learning_rate(s, 100000) == 0.5);
  s.kind = Schedule::Kind::kWarmupLr;
  s.warmup_min_lr = 0.1;
  s.warmup_max_lr = 1.1;
  s.warmup_num_steps = 10;
  s.warmup_type = Schedule::Warmup::kLinear;
  CHECK(learning_rate(s, 0) == 0.1);
  CHECK(learning_rate(s, 1) == 0.1);  // iteration 0
  CHECK(learning_rate(s, 6) == Approx(0.6));
  CHECK(learning_rate(s, 10) == Approx(1.0));
  CHECK(learning_rate(s, 11) == Approx(1.1));
  CHECK(learning_rate(s, 500) == Approx(1.1));
  s.warmup_type = Schedule::Warmup::kLog;
  CHECK(learning_rate(s, 1) == Approx(0.1));
  CHECK(learning_rate(s, 4) == Approx(0.1 + std::log10(4.0)));
  CHECK(learning_rate(s, 10) == Approx(1.1));
  s.warmup_num_steps = 0;  // counts as 2: no division by zero
  CHECK(learning_rate(s, 2) == Approx(1.1));
}

TEST_CASE("WarmupDecayLR falls in a line to zero and stays there") {
  Schedule s;
  s.kind = Schedule::Kind::kWarmupDecayLr;
  s.warmup_type = Schedule::Warmup::kLinear;
  s.warmup_max_lr = 2;
  s.warmup_num_steps = 4;
  s.total_num_steps = 12;
  CHECK(learning_rate(s, 3) == Approx(1.0));  // iteration 2 of 4
  CHECK(learning_rate(s, 5) == Approx(2.0));  // iteration 4: 8 of 8 left
  CHECK(learning_rate(s, 9) == Approx(1.0));  // iteration 8
  CHECK(learning_rate(s, 13) == Approx(0.0).margin(1e-15));
  CHECK(learning_rate(s, 99) == 0.0);
}

TEST_CASE("WarmupCosineLR warms up, follows the cosine and keeps its floor") {
  Schedule s;
  s.kind = Schedule::Kind::kWarmupCosineLr;
  s.warmup_type = Schedule::Warmup::kLinear;
  s.base_rate = 2;
  s.warmup_min_ratio = 0.5;
  s.cos_min_ratio = 0.1;
  s.warmup_num_steps = 4;
  s.total_num_steps = 12;
  CHECK(learning_rate(s, 0) == 0.0);
  CHECK(learning_rate(s, 1) == Approx(1.0));
  CHECK(learning_rate(s, 3) == Approx(1.5));
  // Iteration 4 is the first of eight: cos(pi / 8).
  CHECK(learning_rate(s, 5) == Approx(2 * (0.1 + 0.9 * (1 + std::cos(3.14159265358979 / 8)) / 2)));
  CHECK(learning_rate(s, 8) == Approx(2 * (0.1 + 0.9 * 0.5)));
  CHECK(learning_rate(s, 12) == Approx(0.2));
  CHECK(learning_rate(s, 1000) == Approx(0.2));
}

}  // namespace
}  // namespace muster::runtime
