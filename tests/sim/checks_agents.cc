// SPDX-License-Identifier: Apache-2.0
//
// What must hold of agents and of the processes that they start.
#include <algorithm>

#include "tests/sim/checks.h"

namespace muster::sim {
namespace {

std::string text_of(Generation generation) {
  return "g" + std::to_string(generation);
}

}  // namespace

void Checks::agent_started(std::size_t node) {
  agents_[node] = AgentRecord{};
  ++tally["agent lives"];
}

namespace {

bool is_stop_signal(const agent::Event& event) {
  const auto* received = std::get_if<agent::SignalReceived>(&event);
  return received != nullptr && (received->signal == 15 || received->signal == 2);
}

}  // namespace

void Checks::agent_stepped(const NodeTruth& node, const agent::Event& event,
                           const std::vector<agent::Action>& actions) {
  AgentRecord& record = agents_[node.index];
  if (record.finished && !actions.empty()) fail("A3: " + node.name + " acts after Finish");
  if (const auto* said = std::get_if<agent::ServerSaid>(&event)) {
    if (std::holds_alternative<StopOrder>(said->message.body)) ++record.orders;
    if (std::holds_alternative<JoinAccepted>(said->message.body)) ++record.orders;
    if (std::holds_alternative<ServerLeaving>(said->message.body)) {
      record.server_left = clock_.now();
    }
    if (std::holds_alternative<Evicted>(said->message.body)) ++tally["evictions"];
  }
  if (is_stop_signal(event)) unread_leaves_.insert(node.name);
  note_stops(record, event);
  const bool port_failed = std::holds_alternative<agent::MasterPortFailed>(event);
  if (port_failed || std::holds_alternative<agent::MasterPortHeld>(event)) {
    // Of several asked for only the last is wanted, and answers come in order.
    if (--record.ports_asked == 0 && port_failed) record.port_held = false;
  }
  if (const auto* held = std::get_if<agent::MasterPortHeld>(&event)) {
    ports_[{node.name, held->attempt}] = held->port;
  }
  bool opens = node.stream_open;
  for (const agent::Action& action : actions) {
    if (const auto* send = std::get_if<agent::Send>(&action)) {
      if (!node.stream_up) fail(node.name + " sends without a stream");
      check_send(node, record, send->message);
    } else if (std::holds_alternative<agent::Connect>(action)) {
      if (opens) fail(node.name + " opens a second stream");
      opens = true;
    } else if (std::holds_alternative<agent::Disconnect>(action)) {
      if (!opens) fail(node.name + " closes a stream that is not open");
      opens = false;
    } else if (std::holds_alternative<agent::HoldMasterPort>(action)) {
      if (record.port_held) fail(node.name + " holds a second master port");
      record.port_held = true;
      ++record.ports_asked;
    } else if (std::holds_alternative<agent::ReleaseMasterPort>(action)) {
      if (!record.port_held) fail(node.name + " releases a port that it does not hold");
      record.port_held = false;
    } else if (const auto* start = std::get_if<agent::StartWorkers>(&action)) {
      check_start(node, *start);
      record.may_stop = false;
      record.suspended.clear();
      record.told_to_end.clear();
    } else if (const auto* signal = std::get_if<agent::SignalWorker>(&action)) {
      note_signal(record, *signal);
      check_signal(node, record, *signal);
    } else if (const auto* finish = std::get_if<agent::Finish>(&action)) {
      if (opens) fail(node.name + " finishes with a stream open");
      check_finish(node, record, *finish);
    }
  }
  for (const std::uint32_t local_rank : record.suspended) {
    if (!record.told_to_end.contains(local_rank)) continue;
    fail("A5: " + node.name + " leaves local rank " + std::to_string(local_rank) +
         " suspended that it told to end");
  }
}

void Checks::note_signal(AgentRecord& record, const agent::SignalWorker& order) {
  if (order.signal == 19) {
    record.suspended.insert(order.local_rank);
  } else if (order.signal == 18) {
    record.suspended.erase(order.local_rank);
  } else {
    record.told_to_end.insert(order.local_rank);
  }
}

// What may end a generation on its node, and what keeps the lease.
void Checks::note_stops(AgentRecord& record, const agent::Event& event) {
  if (const auto* said = std::get_if<agent::ServerSaid>(&event)) {
    const ServerBody& body = said->message.body;
    if (std::holds_alternative<JoinAccepted>(body)) record.lease_from = record.join_sent;
    if (const auto* answer = std::get_if<HeartbeatAck>(&body)) {
      const auto sent = record.heartbeats.find(answer->sequence);
      if (sent == record.heartbeats.end()) return;
      record.lease_from = std::max(record.lease_from, sent->second);
      record.heartbeats.erase(record.heartbeats.begin(), std::next(sent));
    }
    record.may_stop =
        record.may_stop || std::holds_alternative<StopOrder>(body) ||
        std::holds_alternative<Evicted>(body) || std::holds_alternative<JoinRefused>(body) ||
        std::holds_alternative<OutcomeNotice>(body) || std::holds_alternative<ServerLeaving>(body);
  } else if (const auto* ended = std::get_if<agent::WorkerEnded>(&event)) {
    record.may_stop = record.may_stop || !ended->status.succeeded();
  } else if (is_stop_signal(event) || std::holds_alternative<agent::WorkerUnkillable>(event)) {
    record.may_stop = true;
  }
}

// Guarantee 5: losing the server alone ends no worker within the server's grace.
void Checks::check_signal(const NodeTruth& node, const AgentRecord& record,
                          const agent::SignalWorker& order) {
  if (!order.stops) return;
  const JobPolicy& policy = options_.policy;
  const Duration lease = std::max(policy.server_grace, 2 * policy.heartbeat);
  if (record.may_stop || own(node) >= record.lease_from + lease) return;
  for (const ProcessPtr& process : node.processes) {
    if (process->local_rank != order.local_rank || !process->leader) continue;
    fail("G5: " + node.name + " signals rank " + std::to_string(process->rank) +
         " without a reason");
  }
}

void Checks::check_send(const NodeTruth& node, AgentRecord& record, const AgentMessage& message) {
  if (std::holds_alternative<Join>(message.body)) record.join_sent = own(node);
  if (const auto* beat = std::get_if<Heartbeat>(&message.body)) {
    record.heartbeats[beat->sequence] = own(node);
  }
  if (const auto* answer = std::get_if<PrepareAnswer>(&message.body)) {
    if (!answer->accepted) ++tally["prepare refused"];
  }
  record.left = record.left || std::holds_alternative<Leave>(message.body);
  if (!std::holds_alternative<StopConfirmed>(message.body)) return;
  ++record.confirmed;
  const bool asked = record.left || record.confirmed <= record.orders;
  if (!asked) fail("A2: " + node.name + " confirms unasked");
  for (const ProcessPtr& process : node.processes) {
    if (!process->alive() || process->generation != message.envelope.generation) continue;
    fail("A2: " + node.name + " confirms the stop of " + text_of(process->generation) +
         " while rank " + std::to_string(process->rank) + " lives");
  }
}

void Checks::check_finish(const NodeTruth& node, AgentRecord& record, const agent::Finish& finish) {
  if (record.finished) fail("A3: " + node.name + " finishes twice");
  record.finished = true;
  ++tally["finish " + std::to_string(finish.exit_code)];
  if (record.port_held) fail(node.name + " finishes with a master port held");
  for (const ProcessPtr& process : node.processes) {
    if (!process->alive() || process->unkillable) continue;
    fail("A3: " + node.name + " finishes while rank " + std::to_string(process->rank) + " lives");
  }
  if (finish.outcome) {
    const bool known = std::any_of(outcomes_.begin(), outcomes_.end(), [&](const auto& entry) {
      return entry.second == *finish.outcome;
    });
    if (!known) fail("G7: " + node.name + " reports an outcome that nobody decided");
  }
  const bool is_signal = finish.exit_class == ExitClass::kSignal;
  if (is_signal && finish.exit_code <= 128) fail("a signal ends in " + node.name + " with <= 128");
  if (!finish.outcome && !is_signal && finish.exit_code == 0) {
    fail("G7: " + node.name + " reports success without an outcome");
  }
}

void Checks::check_start(const NodeTruth& node, const agent::StartWorkers& start) {
  ++tally["generations started"];
  for (const ProcessPtr& process : node.processes) {
    if (!process->alive()) continue;
    fail("A1: " + node.name + " starts " + text_of(start.generation) + " beside " +
         text_of(process->generation));
  }
  AgentRecord& record = agents_[node.index];
  const auto newest = record.newest.find(start.run);
  if (newest != record.newest.end() && start.generation <= newest->second) {
    fail("R4: agent " + node.name + " starts " + text_of(start.generation) + " after " +
         text_of(newest->second));
  }
  record.newest[start.run] = start.generation;

  const auto [entry, is_new] =
      published_.try_emplace({life_of(node.server_life), start.run, start.generation});
  Published& told = entry->second;
  for (const agent::WorkerPlan& plan : start.workers) {
    const agent::Environment& env = plan.environment;
    const std::string master = env.at("MASTER_ADDR") + ":" + env.at("MASTER_PORT");
    const auto world_size = static_cast<std::uint32_t>(std::stoul(env.at("WORLD_SIZE")));
    const std::string& restarts = env.at("TORCHELASTIC_RESTART_COUNT");
    if (told.rank_at.empty()) told = {world_size, master, restarts, {}};
    if (told.world_size != world_size || told.master != master || told.restart_count != restarts) {
      fail("G1: " + text_of(start.generation) + " is not the same on all nodes");
    }
    if (plan.rank >= world_size) fail("G1: a rank beyond the world");
    if (!told.rank_at.emplace(plan.rank, node.index).second) {
      fail("G1: rank " + std::to_string(plan.rank) + " of run " + start.run + " " +
           text_of(start.generation) + " is held twice");
    }
    const auto count = static_cast<std::uint32_t>(std::stoul(restarts));
    if (record.run == start.run && count < record.restarts_told) {
      fail("R4: agent " + node.name + " tells its workers of fewer restarts than before");
    }
    record.run = start.run;
    record.restarts_told = count;
  }
  check_older(node, start);
}

// Guarantee 2: where a node lives and was not written off, its older workers are gone.
void Checks::check_older(const NodeTruth& node, const agent::StartWorkers& start) {
  const Process* older = find_process_([&](const Process& process) {
    const bool same = process.generation == start.generation && process.run == start.run;
    return !same && process.alive() && !excused(process, start);
  });
  if (older == nullptr || outdated_by_a_leap(node.name)) return;
  if (older->run == start.run && older->generation > start.generation) {
    fail("G2: " + node.name + " starts " + text_of(start.generation) + " while newer " +
         text_of(older->generation) + " runs");
    return;
  }
  fail("G2: " + node.name + " starts " + text_of(start.generation) + " while rank " +
       std::to_string(older->rank) + " of " + text_of(older->generation) + " on node " +
       std::to_string(older->node) + " lives");
}

// The server's clock leapt, so that it gave the node up between one word of its own and the next:
// the node acts on that word, a Commit even, until it hears more.
bool Checks::outdated_by_a_leap(const NodeName& node) const {
  const auto off = written_off_.find(node);
  const auto accepted = accepted_.find(node);
  return fence_void_ && options_.policy.fence != Fence::kStrict && off != written_off_.end() &&
         accepted != accepted_.end() && off->second >= accepted->second;
}

bool Checks::excused(const Process& process, const agent::StartWorkers& start) const {
  if (process.unkillable) return true;
  // What workers of a run that succeeded left behind has a grace of its own.
  for (const auto& [key, outcome] : outcomes_) {
    if (process.leader || key.second != process.run) continue;
    if (outcome.kind == OutcomeKind::kSucceeded) return true;
  }
  const NodeName name = node_name(process.node);
  const auto off = written_off_.find(name);
  const bool is_off = off != written_off_.end() && off->second >= process.started;
  const Instant since = is_off ? off->second : process.started;
  const bool strict = options_.policy.fence == Fence::kStrict && !process.frozen &&
                      !(fence_void_ && *fence_void_ >= since);
  if (outdated_by_a_leap(name)) return true;
  // Also those that a Commit sent before the server's goodbye starts after it.
  if (!strict && (is_off || goodbyes_.contains(process.run))) return true;
  // One that leaves has ended its stream for good, as far as the server can tell.
  const auto lost = stream_lost_.find(name);
  if (!strict && left_.contains(name) && lost != stream_lost_.end() &&
      clock_.now() >= lost->second + options_.policy.reconnect_grace) {
    return true;
  }
  // A server that came back with nothing cannot wait for those that it has not met.
  const auto met = met_.find({start.run, start.generation});
  return server_.started > process.started && (met == met_.end() || !met->second.contains(name));
}

void Checks::long_after() {
  for (const auto& [key, outcome] : outcomes_) {
    const bool known = key.first == life_of(server_life_) && !forgotten_.contains(key.second);
    if (known && !server_.over.contains(key.second)) {
      fail("liveness: run " + key.second + " has an outcome and no JobOver");
    }
  }
  if (!server_.stops_open.empty()) fail("a stop request was never answered");
}

void Checks::lease(const NodeTruth& node, Instant last_answer) {
  const JobPolicy& policy = options_.policy;
  // Answers count from when they were asked for: the latest is older than its arrival. A server
  // that says goodbye leaves the workers their grace, from when that is read: by an agent that
  // slept later than its lease.
  const std::optional<Instant> left = agents_[node.index].server_left;
  Instant end = last_answer + std::max(policy.server_grace, 2 * policy.heartbeat);
  if (left) end = std::max(end, *left);
  if (clock_.now() <= end + (left ? 2 * policy.stop_grace : 200ms)) return;
  for (const ProcessPtr& process : node.processes) {
    if (!process->alive() || process->unkillable) continue;
    fail("A4: " + node.name + " runs rank " + std::to_string(process->rank) + " without a lease");
  }
}

}  // namespace muster::sim
