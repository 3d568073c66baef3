// SPDX-License-Identifier: Apache-2.0
#include "agent/core/trace.h"

#include <concepts>
#include <cstddef>

#include "agent/core/lines.h"

namespace muster::agent {
namespace {

std::string n(std::integral auto value) {
  return std::to_string(value);
}

std::string g(Generation generation) {
  return generation == kNoGeneration ? "g-" : "g" + n(generation);
}

// "job j run r node a#2 g1 epoch 3": whose message it is.
std::string head(const Envelope& envelope) {
  std::string text = " [job " + envelope.job;
  if (!envelope.run.empty()) text += " run " + envelope.run;
  return text + " node " + envelope.node + "#" + n(envelope.incarnation) + " " +
         g(envelope.generation) + " epoch " + n(envelope.epoch) + "]";
}

std::string in_words(const ExitStatus& status) {
  switch (status.kind) {
    case ExitStatus::Kind::kExited: return "exit " + n(status.value);
    case ExitStatus::Kind::kSignaled:
      return signal_name(status.value) + (status.core_dumped ? " (core dumped)" : "");
    case ExitStatus::Kind::kExecFailed: return "exec failed";
  }
  return "";
}

const char* scope_word(SignalScope scope) {
  switch (scope) {
    case SignalScope::kLeader: return "the process";
    case SignalScope::kGroup: return "its group";
    case SignalScope::kDescendants: return "all below it";
    case SignalScope::kBeyondGroup: return "all below it beyond its group";
  }
  return "";
}

std::string in_words(const Reattach& again) {
  return " again: was #" + n(again.incarnation) + " of run " + again.run + ", " +
         g(again.generation) + (again.workers_running ? ", workers run" : "") + ", " +
         n(again.ranks_done.size()) + " ranks done, " + n(again.restarts_used) + " restarts used";
}

std::string charge(const JobEvent& event) {
  const auto* restart = std::get_if<event::RestartScheduled>(&event.body);
  if (restart == nullptr) return "";
  return (restart->charged ? ", charged, in " : ", free, in ") + format_measured(restart->delay);
}

// One message's name and what it says.
struct Body {
  std::string operator()(const Join& m) const {
    return "Join: " + n(m.node.slots) + (m.node.slots == 1 ? " slot" : " slots") +
           (m.node.node_rank ? ", node rank " + n(*m.node.node_rank) : "") +
           (m.node.hosts_server ? ", hosts the server" : "") +
           (m.reattach ? in_words(*m.reattach) : "");
  }
  std::string operator()(const Heartbeat& m) const {
    return "Heartbeat " + n(m.sequence) + ", " + n(m.progress.size()) + " ranks report";
  }
  std::string operator()(const PrepareAnswer& m) const {
    return "PrepareAnswer: attempt " + n(m.attempt) +
           (m.accepted ? " accepted" : " refused: " + m.reason) +
           (m.master_port == 0 ? "" : ", master port " + n(m.master_port));
  }
  std::string operator()(const WorkersStarted& m) const {
    std::string text = "WorkersStarted in " + format_measured(m.spawn) + ":";
    for (const StartedWorker& worker : m.workers)
      text += " rank " + n(worker.rank) + " pid " + n(worker.pid);
    return text;
  }
  std::string operator()(const WorkerExited& m) const {
    return "WorkerExited: rank " + n(m.rank) + " pid " + n(m.pid) + " " + in_words(m.status) +
           (m.oom ? ", out of memory" : "") + (m.torn_down ? ", torn down" : "") +
           (m.parting ? ", parting" : "") +
           (m.agent_signaled ? ", by the signal that stops this agent" : "");
  }
  std::string operator()(const StopConfirmed& /*m*/) const { return "StopConfirmed"; }
  std::string operator()(const Leave& m) const {
    return "Leave: " + (m.signal == 0 ? m.reason : signal_name(m.signal) + " " + m.reason);
  }
  std::string operator()(const ChaosFired& m) const {
    return "ChaosFired: fault " + n(m.fault_index) + (m.rank ? " on rank " + n(*m.rank) : "");
  }
  std::string operator()(const OutcomeSeen& /*m*/) const { return "OutcomeSeen"; }

  std::string operator()(const JoinAccepted& m) const {
    return std::string("JoinAccepted as ") + (m.role == Role::kSpare ? "spare" : "member") +
           " by server " + m.server_instance +
           (m.observed_addr.empty() ? "" : ", which sees " + m.observed_addr);
  }
  std::string operator()(const JoinRefused& m) const {
    return "JoinRefused, exit code " + n(m.exit_code) + ": " + m.text;
  }
  std::string operator()(const Waiting& m) const { return "Waiting: " + describe(m); }
  std::string operator()(const Prepare& m) const {
    const Assignment& to = m.assignment;
    std::string text = "Prepare: attempt " + n(m.attempt) + ", " + to_word(to.reason) +
                       ", group rank " + n(to.group_rank) + ", world size " + n(to.world_size) +
                       ", nodes";
    for (const MemberRanks& member : to.members)
      text += " " + member.node + ":" + n(member.first_rank) + "+" + n(member.count);
    return text + ", restarts " + n(to.restarts_used) + " of " + n(to.max_restarts) + ", " +
           n(to.faults.size()) + " faults armed";
  }
  std::string operator()(const Commit& m) const {
    return "Commit: attempt " + n(m.attempt) + ", master port " + n(m.master_port);
  }
  std::string operator()(const StopOrder& m) const {
    return std::string("StopOrder") + (m.planned ? ", planned: " : ": ") + m.reason;
  }
  std::string operator()(const HeartbeatAck& m) const { return "HeartbeatAck " + n(m.sequence); }
  std::string operator()(const JobEventNotice& m) const {
    const JobEvent& event = m.event;
    return std::string("JobEventNotice: ") + event_name(event.body) +
           (event.generation ? " " + g(*event.generation) : "") +
           (event.node ? " node " + *event.node : "") +
           (event.rank ? " rank " + n(*event.rank) : "") + charge(event) +
           (m.age > Duration{0} ? ", " + format_measured(m.age) + " ago" : "");
  }
  std::string operator()(const OutcomeNotice& m) const {
    return std::string("OutcomeNotice: ") + to_word(m.outcome.kind) + ", exit code " +
           n(m.outcome.exit_code) + ": " + m.outcome.text;
  }
  std::string operator()(const Evicted& m) const {
    return (m.drained ? "Evicted, drained: " : "Evicted: ") + m.reason;
  }
  std::string operator()(const Stale& m) const {
    return "Stale: " + m.what + " is not current, the server holds" + head(m.known);
  }
  std::string operator()(const ServerLeaving& m) const { return "ServerLeaving: " + m.reason; }
};

std::string worker(std::uint32_t local_rank, std::int64_t pid) {
  return "local rank " + n(local_rank) + (pid > 0 ? " pid " + n(pid) : "");
}

struct Happened {
  std::string operator()(const Started& /*e*/) const { return "started"; }
  std::string operator()(const LinkUp& /*e*/) const { return "stream to the server is up"; }
  std::string operator()(const LinkDown& e) const {
    return "stream to the server is down: " + e.reason +
           (e.speaks_muster ? "" : " (what answers is not Muster)");
  }
  std::string operator()(const ServerSaid& e) const {
    return "received " + std::visit(Body{}, e.message.body) + head(e.message.envelope);
  }
  std::string operator()(const MasterPortHeld& e) const {
    return "master port " + n(e.port) + " is held for attempt " + n(e.attempt);
  }
  std::string operator()(const MasterPortFailed& e) const {
    return "no master port for attempt " + n(e.attempt) + ": " + e.reason;
  }
  std::string operator()(const WorkerSpawned& e) const {
    return worker(e.local_rank, e.pid) + " runs";
  }
  std::string operator()(const WorkerEnded& e) const {
    return worker(e.local_rank, e.pid) + " ended: " + in_words(e.status) +
           (e.oom ? ", out of memory" : "") + ", number " + n(e.order) + ", ran " +
           format_measured(e.run) + (e.secondary ? ", secondary by its error file" : "");
  }
  std::string operator()(const WorkerGone& e) const {
    return worker(e.local_rank, 0) + " is gone, with all that it started";
  }
  std::string operator()(const WorkerUnkillable& e) const {
    return worker(e.local_rank, e.pid) + " outlives SIGKILL, state " + e.state;
  }
  std::string operator()(const SignalReceived& e) const {
    return "received " + signal_name(e.signal);
  }
  std::string operator()(const GuardianLost& e) const { return e.reason; }
  std::string operator()(const FaultFired& e) const {
    return "fault " + n(e.fault_index) + " fired" + (e.rank ? " on rank " + n(*e.rank) : "");
  }
  std::string operator()(const ProgressSampled& /*e*/) const { return ""; }
  std::string operator()(const DevicesFreed& e) const {
    if (e.holder.empty()) return "GPU memory is free for the next workers";
    return "GPU memory is awaited no longer: " + e.holder;
  }
  std::string operator()(const StacksCaptured& e) const {
    std::string text = "stacks are captured:";
    for (const CapturedStacks& one : e.workers) {
      text += " " + worker(one.local_rank, 0) + (one.stopped ? " (stopped)" : "") + " " +
              (one.path.empty() ? "none" : one.path);
    }
    return text;
  }
  std::string operator()(const Tick& /*e*/) const { return ""; }
};

struct Ordered {
  std::string operator()(const Connect& a) const {
    return "connects" + (a.delay > Duration{0} ? " in " + format_measured(a.delay) : "");
  }
  std::string operator()(const Disconnect& /*a*/) const { return "disconnects"; }
  std::string operator()(const Send& a) const {
    return "sends " + std::visit(Body{}, a.message.body) + head(a.message.envelope);
  }
  std::string operator()(const HoldMasterPort& a) const {
    return "looks for a master port in " + n(a.low) + "-" + n(a.high) + " for attempt " +
           n(a.attempt);
  }
  std::string operator()(const ReleaseMasterPort& /*a*/) const { return "frees the master port"; }
  std::string operator()(const StartWorkers& a) const {
    std::string text = "starts workers of run " + a.run + " " + g(a.generation) + ":";
    for (const WorkerPlan& plan : a.workers) {
      text += " rank " + n(plan.rank) + " as local rank " + n(plan.local_rank) +
              (plan.faults.empty() ? "" : " with " + n(plan.faults.size()) + " faults");
    }
    return text;
  }
  std::string operator()(const SignalWorker& a) const {
    const std::string spared =
        a.spares_failing == 0s ? ""
                               : ", " + format_measured(a.spares_failing) + " later if it fails";
    return signal_name(a.signal) + " to " + worker(a.local_rank, 0) + ", " + scope_word(a.scope) +
           spared;
  }
  std::string operator()(const WriteStopFile& a) const {
    return "writes the stop file of " + worker(a.local_rank, 0);
  }
  std::string operator()(const SuspendGuardian& /*a*/) const { return "suspends the guardian"; }
  std::string operator()(const ResumeGuardian& /*a*/) const { return "resumes the guardian"; }
  std::string operator()(const StartFaultClock& a) const {
    return "faults of " + g(a.generation) + " count from " + format_measured(a.elapsed) + " ago";
  }
  std::string operator()(const AwaitDevices& a) const {
    return "looks for " + format_measured(a.patience) + " whether the GPU memory of " +
           n(a.pids.size()) + " processes is free";
  }
  std::string operator()(const CaptureStacks& a) const {
    return "captures stacks of " + n(a.workers.size()) + " workers";
  }
  std::string operator()(const Emit& /*a*/) const { return ""; }
  std::string operator()(const Say& /*a*/) const { return ""; }
  std::string operator()(const SayLingering& /*a*/) const { return ""; }
  std::string operator()(const NoteFirstCause& a) const {
    return "first cause: " + describe(a.failure);
  }
  std::string operator()(const Finish& a) const {
    return "ends with " + n(a.exit_code) + ", class " + to_word(a.exit_class) +
           (a.text.empty() ? "" : ": " + a.text);
  }
};

}  // namespace

std::string trace(const Event& event) {
  return std::visit(Happened{}, event);
}

std::string trace(const Action& action) {
  return std::visit(Ordered{}, action);
}

const char* phase_word(Phase phase) {
  switch (phase) {
    case Phase::kConnecting: return "connecting";
    case Phase::kWaiting: return "waiting";
    case Phase::kPrepared: return "prepared";
    case Phase::kStarting: return "starting";
    case Phase::kRunning: return "running";
    case Phase::kStopping: return "stopping";
    case Phase::kIdle: return "idle";
    case Phase::kLeaving: return "leaving";
    case Phase::kFinished: return "finished";
  }
  return "";
}

}  // namespace muster::agent
