// SPDX-License-Identifier: Apache-2.0
//
// JobEvent and its alternatives. One `write` and one `read` an alternative; the visit and the
// switch below are exhaustive, so a new event does not compile until it crosses.
#include <utility>

#include "proto/wire/job.h"

namespace muster::wire {
namespace {

using v1::JobEvent;

constexpr std::int64_t kLastUnixUs = 253402300800000000;  // the end of the year 9999

static_assert(v1::NodeLeft::Why_MAX == static_cast<int>(event::NodeLeft::Why::kDrained) + 1);

void put(const event::JobStarted& from, JobEvent& event) {
  auto& to = *event.mutable_job_started();
  to.set_min_nodes(from.min_nodes);
  to.set_max_nodes(from.max_nodes);
  to.set_max_restarts(from.max_restarts);
}
event::JobStarted get(const v1::JobStarted& from, Border&) {
  return {from.min_nodes(), from.max_nodes(), from.max_restarts()};
}

void put(const event::NodeJoined& from, JobEvent& event) {
  auto& to = *event.mutable_node_joined();
  to.set_host(from.host);
  to.set_addr(from.addr);
  to.set_slots(from.slots);
  to.set_spare(from.spare);
  to.set_incarnation(from.incarnation);
}
event::NodeJoined get(const v1::NodeJoined& from, Border& border) {
  return {border.name("host", from.host()), border.name("addr", from.addr()), from.slots(),
          from.spare(), from.incarnation()};
}

void put(const event::NodeLeft& from, JobEvent& event) {
  event.mutable_node_left()->set_why(to_enum<v1::NodeLeft::Why>(from.why));
}
event::NodeLeft get(const v1::NodeLeft& from, Border& border) {
  return {border.enumerator("why", from.why(), event::NodeLeft::Why::kDrained)};
}

void put(const event::GenerationFormed& from, JobEvent& event) {
  auto& to = *event.mutable_generation_formed();
  to.set_world_size(from.world_size);
  for (const MemberRanks& node : from.nodes)
    write(node, *to.add_nodes());
  to.set_master_addr(from.master_addr);
  to.set_master_port(from.master_port);
  to.set_reason(to_enum<v1::FormReason>(from.reason));
}
event::GenerationFormed get(const v1::GenerationFormed& from, Border& border) {
  event::GenerationFormed to;
  to.world_size = border.between("world_size", from.world_size(), 1U, kMaxWorldSize);
  if (border.count("nodes", from.nodes_size(), kMaxMembers)) {
    for (const v1::MemberRanks& node : from.nodes()) {
      to.nodes.push_back(border.within("nodes", [&] { return read(node, border); }));
    }
  }
  to.master_addr = border.name("master_addr", from.master_addr());
  to.master_port = border.port("master_port", from.master_port());
  to.reason = border.enumerator("reason", from.reason(), FormReason::kStateLost);
  return to;
}

void put(const event::WorkerStarted& from, JobEvent& event) {
  event.mutable_worker_started()->set_argv0(cut(from.argv0));
}
event::WorkerStarted get(const v1::WorkerStarted& from, Border& border) {
  return {border.text("argv0", from.argv0())};
}

void put(const event::WorkerEnded& from, JobEvent& event) {
  auto& to = *event.mutable_worker_exited();
  if (from.exit_code) to.set_exit_code(*from.exit_code);
  if (from.signal) to.set_signal(*from.signal);
  to.set_torn_down(from.torn_down);
  to.set_max_rss_bytes(from.max_rss_bytes);
  to.set_run_ns(from.run.count());
  to.set_stacks(cut(from.stacks));
}
event::WorkerEnded get(const v1::WorkerEnded& from, Border& border) {
  event::WorkerEnded to;
  if (from.has_exit_code()) to.exit_code = border.between("exit_code", from.exit_code(), 0, 255);
  if (from.has_signal()) to.signal = border.between("signal", from.signal(), 0, 64);
  to.torn_down = from.torn_down();
  to.max_rss_bytes = from.max_rss_bytes();
  to.run = border.duration("run_ns", from.run_ns());
  to.stacks = border.text("stacks", from.stacks());
  return to;
}

void put(const event::GenerationRunning& from, JobEvent& event) {
  auto& to = *event.mutable_generation_running();
  to.set_form_ns(from.form.count());
  to.set_spawn_ns(from.spawn.count());
}
event::GenerationRunning get(const v1::GenerationRunning& from, Border& border) {
  return {border.duration("form_ns", from.form_ns()), border.duration("spawn_ns", from.spawn_ns())};
}

void put(const event::GenerationFailed& from, JobEvent& event) {
  auto& to = *event.mutable_generation_failed();
  write(from.first_cause, *to.mutable_first_cause());
  for (const Failure& victim : from.victims) {
    if (static_cast<std::size_t>(to.victims_size()) == kMaxVictims) break;
    write(victim, *to.add_victims());
  }
}
event::GenerationFailed get(const v1::GenerationFailed& from, Border& border) {
  event::GenerationFailed to;
  if (border.present("first_cause", from.has_first_cause())) {
    to.first_cause = border.within("first_cause", [&] { return read(from.first_cause(), border); });
  }
  if (border.count("victims", from.victims_size(), kMaxVictims)) {
    for (const v1::Failure& victim : from.victims()) {
      to.victims.push_back(border.within("victims", [&] { return read(victim, border); }));
    }
  }
  return to;
}

void put(const event::RestartScheduled& from, JobEvent& event) {
  auto& to = *event.mutable_restart_scheduled();
  to.set_restarts_used(from.restarts_used);
  to.set_max_restarts(from.max_restarts);
  to.set_charged(from.charged);
  to.set_delay_ns(from.delay.count());
}
event::RestartScheduled get(const v1::RestartScheduled& from, Border& border) {
  return {from.restarts_used(), from.max_restarts(), from.charged(),
          border.duration("delay_ns", from.delay_ns())};
}

void put(const event::Recovered& from, JobEvent& event) {
  auto& to = *event.mutable_recovered();
  to.set_detect_ns(from.detect.count());
  to.set_stop_ns(from.stop.count());
  to.set_form_ns(from.form.count());
  to.set_spawn_ns(from.spawn.count());
  to.set_total_ns(from.total.count());
  if (from.first_progress) to.set_first_progress_ns(from.first_progress->count());
}
event::Recovered get(const v1::Recovered& from, Border& border) {
  event::Recovered to;
  to.detect = border.duration("detect_ns", from.detect_ns());
  to.stop = border.duration("stop_ns", from.stop_ns());
  to.form = border.duration("form_ns", from.form_ns());
  to.spawn = border.duration("spawn_ns", from.spawn_ns());
  to.total = border.duration("total_ns", from.total_ns());
  if (from.has_first_progress_ns()) {
    to.first_progress = border.duration("first_progress_ns", from.first_progress_ns());
  }
  return to;
}

void put(const event::ChaosHit& from, JobEvent& event) {
  event.mutable_chaos_fired()->set_fault(cut(from.fault));
  event.mutable_chaos_fired()->set_target(cut(from.target));
}
event::ChaosHit get(const v1::ChaosHit& from, Border& border) {
  return {border.text("fault", from.fault()), border.text("target", from.target())};
}

void put(const event::ChaosMissed& from, JobEvent& event) {
  event.mutable_chaos_unfired()->set_fault(cut(from.fault));
  event.mutable_chaos_unfired()->set_target(cut(from.target));
}
event::ChaosMissed get(const v1::ChaosMissed& from, Border& border) {
  return {border.text("fault", from.fault()), border.text("target", from.target())};
}

void put(const event::StateLost& from, JobEvent& event) {
  event.mutable_state_lost()->set_reason(cut(from.reason));
}
event::StateLost get(const v1::StateLost& from, Border& border) {
  return {border.text("reason", from.reason())};
}

void put(const event::ServerRecovered& from, JobEvent& event) {
  event.mutable_server_recovered()->set_reason(cut(from.reason));
}
event::ServerRecovered get(const v1::ServerRecovered& from, Border& border) {
  return {border.text("reason", from.reason())};
}

void put(const event::NodeQuarantined& from, JobEvent& event) {
  event.mutable_node_quarantined()->set_until_us(from.until_us);
  event.mutable_node_quarantined()->set_reason(cut(from.reason));
}
event::NodeQuarantined get(const v1::NodeQuarantined& from, Border& border) {
  return {border.between<std::int64_t>("until_us", from.until_us(), 0, kLastUnixUs),
          border.text("reason", from.reason())};
}

void put(const event::ServerGoing& from, JobEvent& event) {
  event.mutable_server_leaving()->set_reason(cut(from.reason));
}
event::ServerGoing get(const v1::ServerGoing& from, Border& border) {
  return {border.text("reason", from.reason())};
}

void put(const event::JobFinished& from, JobEvent& event) {
  write(from.outcome, *event.mutable_job_finished()->mutable_outcome());
}
event::JobFinished get(const v1::JobFinished& from, Border& border) {
  event::JobFinished to;
  if (border.present("outcome", from.has_outcome())) {
    to.outcome = border.within("outcome", [&] { return read(from.outcome(), border); });
  }
  return to;
}

EventBody body_of(const JobEvent& from, Border& border) {
  switch (from.body_case()) {
    case JobEvent::kJobStarted: return get(from.job_started(), border);
    case JobEvent::kNodeJoined: return get(from.node_joined(), border);
    case JobEvent::kNodeLeft: return get(from.node_left(), border);
    case JobEvent::kGenerationFormed: return get(from.generation_formed(), border);
    case JobEvent::kWorkerStarted: return get(from.worker_started(), border);
    case JobEvent::kWorkerExited: return get(from.worker_exited(), border);
    case JobEvent::kGenerationRunning: return get(from.generation_running(), border);
    case JobEvent::kGenerationFailed: return get(from.generation_failed(), border);
    case JobEvent::kRestartScheduled: return get(from.restart_scheduled(), border);
    case JobEvent::kRecovered: return get(from.recovered(), border);
    case JobEvent::kChaosFired: return get(from.chaos_fired(), border);
    case JobEvent::kChaosUnfired: return get(from.chaos_unfired(), border);
    case JobEvent::kStateLost: return get(from.state_lost(), border);
    case JobEvent::kServerRecovered: return get(from.server_recovered(), border);
    case JobEvent::kNodeQuarantined: return get(from.node_quarantined(), border);
    case JobEvent::kServerLeaving: return get(from.server_leaving(), border);
    case JobEvent::kJobFinished: return get(from.job_finished(), border);
    case JobEvent::BODY_NOT_SET: break;
  }
  border.complain("body", "missing or unknown");
  return event::JobStarted{};
}

}  // namespace

void write(const muster::JobEvent& from, v1::JobEvent& to) {
  if (from.generation) to.set_generation(*from.generation);
  if (from.node) to.set_node(*from.node);
  if (from.rank) to.set_rank(*from.rank);
  if (from.local_rank) to.set_local_rank(*from.local_rank);
  if (from.pid) to.set_pid(*from.pid);
  std::visit([&](const auto& body) { put(body, to); }, from.body);
}

muster::JobEvent read(const v1::JobEvent& from, Border& border) {
  muster::JobEvent to;
  if (from.has_generation()) to.generation = border.generation("generation", from.generation());
  if (from.has_node()) to.node = border.name("node", from.node());
  if (from.has_rank()) to.rank = border.between("rank", from.rank(), 0U, kMaxWorldSize - 1);
  if (from.has_local_rank()) {
    to.local_rank = border.between("local_rank", from.local_rank(), 0U, kMaxSlots - 1);
  }
  if (from.has_pid()) to.pid = border.pid("pid", from.pid());
  to.body = border.within("body", [&] { return body_of(from, border); });
  return to;
}

}  // namespace muster::wire
