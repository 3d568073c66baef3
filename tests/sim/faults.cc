// SPDX-License-Identifier: Apache-2.0
//
// The faults: when each strikes next, and what it does.
#include <cmath>

#include "tests/sim/node.h"
#include "tests/sim/world.h"

namespace muster::sim {

// Strikes at random times with the given mean rate until the fault phase is over.
void World::repeat(double rate, std::function<void()> strike) {
  if (rate <= 0) return;
  const double wait = -std::log(1.0 - rng.unit()) / rate;
  const auto delay = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(wait));
  if (clock.now() + delay > Instant{options.fault_phase}) return;
  clock.after(delay, [this, rate, strike = std::move(strike)] {
    if (quiet) return;
    strike();
    repeat(rate, strike);
  });
}

void World::strike_node(std::size_t node, double rate, void (World::*strike)(std::size_t)) {
  repeat(rate, [this, node, strike] { (this->*strike)(node); });
}

void World::plan_faults() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    strike_node(i, options.breaks, &World::break_stream);
    strike_node(i, options.half_open, &World::half_open_stream);
    strike_node(i, options.stalls, &World::stall_stream);
    strike_node(i, options.freezes, &World::freeze_agent);
    strike_node(i, options.agent_kills, &World::kill_agent);
    strike_node(i, options.agent_signals, &World::signal_agent);
    strike_node(i, options.suspends, &World::suspend_agent);
    strike_node(i, options.one_way, &World::bar_one_way);
    strike_node(i, options.agent_leaps, &World::leap_agent);
  }
  repeat(options.server_stalls, [this] { stall_server(); });
  repeat(options.server_leaps, [this] { leap_server(); });
  repeat(options.partitions, [this] { partition(); });
  if (!options.hosted) repeat(options.server_kills, [this] { crash_server_soon(); });
  repeat(options.operator_stops, [this] { order(rendezvous::StopJob{}); });
  repeat(options.operator_restarts, [this] { order(rendezvous::RestartJob{}); });
  repeat(options.operator_scales, [this] { order_scale(); });
  repeat(options.operator_drains, [this] { order_drain(); });
  clock.at(Instant{options.fault_phase}, [this] { end_faults(); });
}

void World::break_stream(std::size_t node) {
  if (const StreamPtr stream = nodes_[node]->stream()) {
    note("fault", [&] { return "break the stream of " + nodes_[node]->truth().name; });
    cut(stream, between(0s, 20ms), between(0s, 20ms));
  }
}

void World::half_open_stream(std::size_t node) {
  if (const StreamPtr stream = nodes_[node]->stream()) {
    note("fault", [&] { return "half-open the stream of " + nodes_[node]->truth().name; });
    cut(stream, between(0s, 12s), between(0s, 12s));
  }
}

void World::stall_stream(std::size_t node) {
  if (const StreamPtr stream = nodes_[node]->stream()) {
    note("fault", [&] { return "stall the stream of " + nodes_[node]->truth().name; });
    stream->stalled_until = clock.now() + between(100ms, 9s);
  }
}

void World::freeze_agent(std::size_t node) {
  nodes_[node]->freeze(between(200ms, 18s));
}

void World::kill_agent(std::size_t node) {
  if (!nodes_[node]->runs()) return;
  if (options.hosted && node == 0) kill_server();
  nodes_[node]->kill_agent();
}

// The clock of a host is that of all on it.
void World::leap_agent(std::size_t node) {
  if (options.hosted && node == 0) return leap_server();
  nodes_[node]->leap(between(600ms, 60s));
}

void World::signal_agent(std::size_t node) {
  if (!nodes_[node]->runs() || (options.hosted && node == 0 && server_stalls_)) return;
  const int signal = rng.below(2) == 0 ? 15 : 2;
  note("fault", [&] { return "signal the agent of " + nodes_[node]->truth().name; });
  if (options.hosted && node == 0 && server_ && rng.below(2) == 0) {
    step_server(rendezvous::ServerStopping{"its host was told to stop"});
  }
  nodes_[node]->signal_agent(signal);
}

void World::suspend_agent(std::size_t node) {
  nodes_[node]->suspend(between(100ms, 20s));
}

void World::crash_server_soon() {
  if (!server_) return;
  if (rng.below(2) == 0) return crash_server();
  crashes_in_step_ = true;
}

void World::crash_server() {
  if (!server_) return;
  kill_server();
  if (options.lost_tails > 0 && chance(options.lost_tails)) lose_tail();
  clock.after(between(10ms, 10s), [this] { start_server(); });
}

void World::order(rendezvous::Order order) {
  if (!server_ || server_stalls_) return;
  step_server(rendezvous::OperatorAsked{++last_request_, "j", "an operator", std::move(order)});
}

// Now and then to a size that makes no sense.
void World::order_scale() {
  const auto max = static_cast<std::uint32_t>(rng.below(options.agents + 2));
  const auto min = static_cast<std::uint32_t>(rng.below(max + 2));
  order(rendezvous::ScaleJob{min, max});
}

void World::order_drain() {
  order(rendezvous::DrainNode{nodes_[rng.below(nodes_.size())]->truth().name});
}

void World::end_faults() {
  quiet = true;
  note("fault", "no more faults");
  crashes_in_step_ = false;
  if (!server_ && !options.hosted) start_server();
  for (const auto& [session, stream] : streams_)
    stream->stalled_until = clock.now();
  for (Barrier& barrier : barriers_)
    barrier = {};
  if (options.hangs > 0) {
    const bool by_order = rng.below(2) == 0;
    clock.after(options.longest_work + 5s, [this, by_order] { end_hangs(by_order); });
  }
  for (const auto& node : nodes_) {
    if (!node->ever_ran()) node->start_agent();
  }
}

// What hangs ends when somebody stops the job, or kills it.
void World::end_hangs(bool by_order) {
  bool hangs = false;
  for (const auto& node : nodes_) {
    hangs = node->hangs() || hangs;
    if (!by_order) node->kill_hung();
  }
  if (hangs && by_order) order(rendezvous::StopJob{});
  clock.after(10s, [this, by_order] { end_hangs(!by_order); });
}

void World::watch_leases() {
  clock.after(100ms, [this] {
    for (const auto& node : nodes_) {
      if (node->runs() && node->settled()) checks.lease(node->truth(), node->last_answer());
    }
    watch_leases();
  });
}

}  // namespace muster::sim
