// SPDX-License-Identifier: Apache-2.0
//
// When a generation is formed, and when nobody waits any longer: join time-out, last call, growth.
// Each property is told once more by a naive model, which walks over all changes of who is there.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/property/driver.h"

namespace muster::rendezvous {
namespace {

constexpr Instant kNever{Duration::max()};

// Who comes or goes when; one at a time, and never at the instant of a deadline.
struct Change {
  Instant at;
  bool comes = true;
  NodeName node;
};

Duration some_time(Rng& rng, Duration most) {
  return 1us +
         Duration(static_cast<Duration::rep>(rng.below(static_cast<std::uint64_t>(most.count()))));
}

std::vector<Change> random_changes(Rng& rng, Instant from, const std::string& names,
                                   std::size_t count, Duration longest_gap) {
  std::vector<Change> changes;
  std::vector<NodeName> here;
  Instant at = from;
  for (std::size_t i = 0; i < count; ++i) {
    at = at + some_time(rng, longest_gap);
    if (!here.empty() && rng.below(3) == 0) {
      const auto who = here.begin() + static_cast<std::ptrdiff_t>(rng.below(here.size()));
      changes.push_back({at, false, *who});
      here.erase(who);
    } else {
      here.push_back(names + std::to_string(i));
      changes.push_back({at, true, here.back()});
    }
  }
  return changes;
}

void apply(Driver& driver, const Change& change) {
  driver.run_to(change.at);
  if (change.comes) {
    driver.join(change.node);
  } else {
    driver.leave(change.node);
  }
}

JobSpec random_spec(Rng& rng) {
  JobSpec spec;
  spec.max_nodes = 1 + static_cast<std::uint32_t>(rng.below(6));
  spec.min_nodes = 1 + static_cast<std::uint32_t>(rng.below(spec.max_nodes));
  spec.policy.join_timeout = some_time(rng, 60s);
  spec.policy.last_call = some_time(rng, 40s);
  return spec;
}

struct Formed {
  Instant at;
  bool times_out = false;
};

// With MAX nodes at once, with MIN a last call after they were reached for good; without MIN at
// the time-out, or when MIN is lost after it.
Formed naive_forming(const JobSpec& spec, const std::vector<Change>& changes) {
  const Instant time_out = changes.front().at + spec.policy.join_timeout;
  std::size_t here = 0;
  Instant call_ends = kNever;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    here += changes[i].comes ? 1U : 0U;
    here -= changes[i].comes ? 0U : 1U;
    const bool is_last = i + 1 == changes.size();
    const Instant next = is_last ? kNever : changes[i + 1].at;
    if (here >= spec.max_nodes) return {changes[i].at};
    if (here >= spec.min_nodes) {
      if (call_ends == kNever) call_ends = changes[i].at + spec.policy.last_call;
      if (call_ends < next) return {call_ends};
      continue;
    }
    call_ends = kNever;
    if (time_out < next) return {std::max(time_out, changes[i].at), true};
  }
  return {};
}

}  // namespace

TEST_CASE("a job forms with MAX nodes at once, else a last call after MIN, else times out") {
  std::size_t timed_out = 0;
  std::size_t called = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    Rng rng(seed);
    const JobSpec spec = random_spec(rng);
    const auto count = static_cast<std::size_t>(1 + rng.below(12));
    const std::vector<Change> changes =
        random_changes(rng, Instant{1s}, "n", count, rng.below(2) == 0 ? 5s : 50s);
    const Formed expected = naive_forming(spec, changes);
    Driver driver(spec, seed);
    for (const Change& change : changes) {
      if (driver.prepared.empty() && driver.outcomes.empty()) apply(driver, change);
    }
    if (driver.prepared.empty() && driver.outcomes.empty()) driver.run_to(Instant{3600s});
    INFO("seed " << seed << ", nnodes " << spec.min_nodes << ":" << spec.max_nodes
                 << ", join time-out " << format_duration(spec.policy.join_timeout)
                 << ", last call " << format_duration(spec.policy.last_call));
    REQUIRE(driver.outcomes.empty() == !expected.times_out);
    REQUIRE(driver.prepared.empty() == expected.times_out);
    if (expected.times_out) {
      REQUIRE(driver.outcomes.front().second.kind == OutcomeKind::kJoinTimeout);
      REQUIRE(driver.outcomes.front().first.since_origin == expected.at.since_origin);
      ++timed_out;
    } else {
      REQUIRE(driver.prepared.front().since_origin == expected.at.since_origin);
      called += driver.members.front() < spec.max_nodes ? 1U : 0U;
    }
  }
  CHECK(timed_out > 300);
  CHECK(called > 300);
}

namespace {

// The generation runs with `here` nodes since `from`, and grew for the last time at `grown`.
std::optional<Instant> naive_growth(const JobSpec& spec, const std::vector<Change>& changes,
                                    std::size_t here, std::optional<Instant> grown) {
  std::size_t late = 0;
  Instant call_ends = kNever;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    late += changes[i].comes ? 1U : 0U;
    late -= changes[i].comes ? 0U : 1U;
    const bool is_last = i + 1 == changes.size();
    const Instant next = is_last ? kNever : changes[i + 1].at;
    if (late == 0) {
      call_ends = kNever;
      continue;
    }
    Instant due = changes[i].at;
    if (here + late < spec.max_nodes) {
      if (call_ends == kNever) call_ends = changes[i].at + spec.policy.last_call;
      due = call_ends;
    }
    if (grown) due = std::max(due, *grown + spec.policy.grow_interval);
    due = std::max(due, changes[i].at);
    if (due < next) return due;
  }
  return std::nullopt;
}

// Nodes start together and form at once; then late ones come and go until the job grows.
struct Growth {
  JobSpec spec;
  std::size_t here = 0;
  std::optional<Instant> grown;
};

Driver formed(Growth& growth, Rng& rng, std::uint64_t seed) {
  JobSpec& spec = growth.spec;
  spec.max_nodes = 2 + static_cast<std::uint32_t>(rng.below(6));
  spec.min_nodes = 1 + static_cast<std::uint32_t>(rng.below(spec.max_nodes - 1));
  spec.policy.last_call = some_time(rng, 20s);
  spec.policy.grow_interval = rng.below(3) == 0 ? Duration{0} : some_time(rng, 60s);
  growth.here = spec.min_nodes;
  Driver driver(spec, seed);
  for (std::uint32_t i = 0; i < spec.min_nodes; ++i)
    driver.join("first" + std::to_string(i));
  driver.run_to(Instant{spec.policy.last_call});
  return driver;
}

}  // namespace

TEST_CASE("a job grows when the late fill it or a last call after they came, at intervals") {
  std::size_t growths = 0;
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    Rng rng(seed);
    Growth growth;
    Driver driver = formed(growth, rng, seed);
    REQUIRE(driver.prepared.size() == 1);
    for (std::uint32_t round = 0; round < 4 && growth.here < growth.spec.max_nodes; ++round) {
      const std::size_t before = driver.grown.size();
      const std::vector<Change> changes =
          random_changes(rng, driver.now(), "late" + std::to_string(round) + "-", 1 + rng.below(6),
                         rng.below(2) == 0 ? 5s : 50s);
      const std::optional<Instant> expected =
          naive_growth(growth.spec, changes, growth.here, growth.grown);
      for (const Change& change : changes) {
        if (driver.grown.size() == before) driver.run_until(change.at, driver.grown);
        if (driver.grown.size() == before) apply(driver, change);
      }
      if (driver.grown.size() == before) driver.run_until(driver.now() + 3600s, driver.grown);
      INFO("seed " << seed << ", round " << round << ", nnodes " << growth.spec.min_nodes << ":"
                   << growth.spec.max_nodes << ", last call "
                   << format_duration(growth.spec.policy.last_call) << ", interval "
                   << format_duration(growth.spec.policy.grow_interval));
      REQUIRE((driver.grown.size() > before) == expected.has_value());
      if (!expected) break;
      REQUIRE(driver.grown.back().since_origin == expected->since_origin);
      // It costs nothing and waits for nobody.
      REQUIRE(driver.prepared.back() == driver.grown.back());
      REQUIRE_FALSE(driver.restarts.back().second.charged);
      REQUIRE(driver.members.back() > growth.here);
      growth.here = driver.members.back();
      growth.grown = driver.grown.back();
      ++growths;
    }
  }
  CHECK(growths > 1500);
}

TEST_CASE("growth at checkpoints comes with the first one after the interval, or never") {
  std::size_t growths = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Rng rng(seed);
    Growth growth;
    growth.spec.policy.grow = rng.below(4) == 0 ? Grow::kNever : Grow::kCheckpoint;
    Driver driver = formed(growth, rng, seed);
    const bool never = growth.spec.policy.grow == Grow::kNever;
    std::uint64_t checkpoint = 0;
    std::size_t late = 0;
    for (std::uint32_t i = 0; i < 40 && growth.here < growth.spec.max_nodes; ++i) {
      driver.run_to(driver.now() + some_time(rng, 20s));
      if (rng.below(4) == 0) {
        driver.join("late" + std::to_string(i));
        ++late;
      }
      const std::size_t before = driver.grown.size();
      const bool rises = rng.below(2) == 0;
      checkpoint += rises ? 1U : 0U;
      driver.progresses("first0", 10 + i, checkpoint);
      const bool early =
          growth.grown && driver.now() < *growth.grown + growth.spec.policy.grow_interval;
      INFO("seed " << seed << ", checkpoint " << checkpoint);
      REQUIRE((driver.grown.size() > before) == (rises && late > 0 && !early && !never));
      if (driver.grown.size() == before) continue;
      growth.here = driver.members.back();
      growth.grown = driver.now();
      late = 0;
      ++growths;
    }
  }
  CHECK(growths > 300);
}

}  // namespace muster::rendezvous
