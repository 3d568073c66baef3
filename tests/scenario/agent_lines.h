// SPDX-License-Identifier: Apache-2.0
//
// Actions of agent::Agent as the lines of a scenario's transcript. Included by agent_adapter.cc
// alone.
#pragma once

#include <map>
#include <string>

#include "agent/core/agent.h"

namespace muster::scenario {

namespace ag = muster::agent;

inline std::string number(std::uint64_t value) {
  return std::to_string(value);
}

inline const char* scope_word(ag::SignalScope scope) {
  switch (scope) {
    case ag::SignalScope::kLeader: return "leader";
    case ag::SignalScope::kGroup: return "group";
    case ag::SignalScope::kDescendants: return "descendants";
    case ag::SignalScope::kBeyondGroup: return "beyond its group";
  }
  return "?";
}

inline std::string status_text(const ExitStatus& status) {
  switch (status.kind) {
    case ExitStatus::Kind::kExited: return "exit " + std::to_string(status.value);
    case ExitStatus::Kind::kSignaled: return signal_name(status.value);
    case ExitStatus::Kind::kExecFailed: return "exec failed: " + status.detail;
  }
  return "?";
}

struct Lines {
  std::string operator()(const ag::Connect& a) const {
    return "connect in " + format_duration(a.delay);
  }
  std::string operator()(const ag::Disconnect&) const { return "disconnect"; }
  std::string operator()(const ag::Send& a) const {
    const std::string head = "send g" + std::to_string(a.message.envelope.generation) + ": ";
    return head + std::visit([](const auto& body) { return text(body); }, a.message.body);
  }
  std::string operator()(const ag::HoldMasterPort& a) const {
    return "hold master port " + number(a.low) + "-" + number(a.high);
  }
  std::string operator()(const ag::ReleaseMasterPort&) const { return "release master port"; }
  std::string operator()(const ag::StartWorkers& a) const {
    std::string line = "start workers of generation " + std::to_string(a.generation) + ":";
    for (const ag::WorkerPlan& plan : a.workers) {
      const auto& env = plan.environment;
      line += " rank " + env.at("RANK") + "/" + env.at("WORLD_SIZE") + " restart " +
              env.at("TORCHELASTIC_RESTART_COUNT") + " (" + env.at("MUSTER_RESTART_REASON") + ")";
    }
    return line;
  }
  std::string operator()(const ag::SignalWorker& a) const {
    return "signal worker " + number(a.local_rank) + ": " + signal_name(a.signal) + " to " +
           scope_word(a.scope);
  }
  std::string operator()(const ag::WriteStopFile& a) const {
    return "stop file of worker " + number(a.local_rank);
  }
  std::string operator()(const ag::SuspendGuardian& /*a*/) const { return "suspend guardian"; }
  std::string operator()(const ag::ResumeGuardian& /*a*/) const { return "resume guardian"; }
  std::string operator()(const ag::StartFaultClock& a) const {
    return "fault clock of generation " + std::to_string(a.generation);
  }
  std::string operator()(const ag::AwaitDevices& a) const {
    return "await devices of " + number(static_cast<std::uint32_t>(a.pids.size())) + " processes";
  }
  std::string operator()(const ag::CaptureStacks& a) const {
    return "capture stacks of " + number(static_cast<std::uint32_t>(a.workers.size())) + " workers";
  }
  std::string operator()(const ag::Emit& a) const {
    std::string line = std::string("event ") + event_name(a.event.body);
    if (a.event.rank) line += " rank " + number(*a.event.rank);
    if (const auto* ended = std::get_if<event::WorkerEnded>(&a.event.body)) {
      if (ended->torn_down) line += " torn down";
    }
    return line;
  }
  std::string operator()(const ag::Say& a) const {
    static const std::map<ag::Severity, std::string> kWords{{ag::Severity::kInfo, "info"},
                                                            {ag::Severity::kWarning, "say"},
                                                            {ag::Severity::kError, "error"}};
    return kWords.at(a.severity) + ": " + a.text;
  }
  std::string operator()(const ag::SayLingering& a) const {
    return "say: rank " + number(a.rank) + " left processes behind, they have " +
           format_duration(a.grace);
  }
  std::string operator()(const ag::NoteFirstCause& a) const {
    return std::string("first cause: ") + to_word(a.failure.kind) + " of rank " +
           number(a.failure.rank.value_or(0));
  }
  std::string operator()(const ag::Finish& a) const {
    std::string line = "finish " + std::to_string(a.exit_code) + " " + to_word(a.exit_class);
    if (a.outcome) line += " (the job " + std::string(to_word(a.outcome->kind)) + ")";
    if (!a.text.empty()) line += ": " + a.text;
    return line;
  }

  static std::string text(const Join& body) {
    if (!body.reattach) return "join";
    const Reattach& re = *body.reattach;
    std::string line = "join again, incarnation " + number(re.incarnation) + ", generation " +
                       std::to_string(re.generation) +
                       (re.workers_running ? ", workers running" : ", nothing running");
    for (const std::uint32_t rank : re.ranks_done)
      line += ", rank " + number(rank) + " done";
    return line;
  }
  static std::string text(const Heartbeat& body) { return "heartbeat " + number(body.sequence); }
  static std::string text(const PrepareAnswer& body) {
    std::string line = body.accepted ? "prepared" : "not prepared (" + body.reason + ")";
    if (body.master_port != 0) line += ", master port " + number(body.master_port);
    return line + ", attempt " + number(body.attempt);
  }
  static std::string text(const WorkersStarted& body) {
    return number(body.workers.size()) + " workers started";
  }
  static std::string text(const WorkerExited& body) {
    std::string line = "rank " + number(body.rank) + " ended: " + status_text(body.status);
    if (body.torn_down) line += body.parting ? ", torn down with its node" : ", torn down";
    if (body.agent_signaled) line += ", agent signalled";
    return line;
  }
  static std::string text(const StopConfirmed&) { return "stop confirmed"; }
  static std::string text(const Leave& body) { return "leave: " + body.reason; }
  static std::string text(const ChaosFired& body) {
    return "fault " + number(body.fault_index) + " fired";
  }
  static std::string text(const OutcomeSeen&) { return "outcome seen"; }
};

}  // namespace muster::scenario
