// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/trace.h"

#include <array>
#include <variant>

namespace muster::sim {
namespace {

std::string n(std::int64_t value) {
  return std::to_string(value);
}
std::string n(std::uint64_t value) {
  return std::to_string(value);
}
std::string n(std::uint32_t value) {
  return std::to_string(value);
}

std::string head(const Envelope& envelope) {
  return envelope.node + "#" + n(envelope.incarnation) + " g" + n(envelope.generation) + " e" +
         n(envelope.epoch) + " ";
}

std::string status_text(const ExitStatus& status) {
  switch (status.kind) {
    case ExitStatus::Kind::kExited: return "exit " + std::to_string(status.value);
    case ExitStatus::Kind::kSignaled: return signal_name(status.value);
    case ExitStatus::Kind::kExecFailed: return "exec failed";
  }
  return "?";
}

struct Bodies {
  std::string operator()(const Join& b) const {
    if (!b.reattach) return "Join";
    return "Join again: run " + b.reattach->run + " #" + n(b.reattach->incarnation) + " g" +
           n(b.reattach->generation) + (b.reattach->workers_running ? " running" : "") +
           (b.reattach->leaving ? " leaving" : "") + " used " + n(b.reattach->restarts_used) +
           " done " + n(std::uint64_t{b.reattach->ranks_done.size()});
  }
  std::string operator()(const Heartbeat& b) const { return "Heartbeat " + n(b.sequence); }
  std::string operator()(const PrepareAnswer& b) const {
    return "PrepareAnswer " + n(b.attempt) + (b.accepted ? " yes" : " no: " + b.reason);
  }
  std::string operator()(const WorkersStarted& b) const {
    return "WorkersStarted " + n(std::uint64_t{b.workers.size()});
  }
  std::string operator()(const WorkerExited& b) const {
    return "WorkerExited rank " + n(b.rank) + " " + status_text(b.status) +
           (b.torn_down ? " torn down" : "") + (b.parting ? " parting" : "") +
           (b.agent_signaled ? " agent signalled" : "");
  }
  std::string operator()(const StopConfirmed&) const { return "StopConfirmed"; }
  std::string operator()(const Leave& b) const { return "Leave " + std::to_string(b.signal); }
  std::string operator()(const ChaosFired&) const { return "ChaosFired"; }
  std::string operator()(const OutcomeSeen&) const { return "OutcomeSeen"; }

  std::string operator()(const JoinAccepted& b) const {
    return std::string("JoinAccepted") + (b.role == Role::kSpare ? " as spare" : "");
  }
  std::string operator()(const JoinRefused& b) const { return "JoinRefused: " + b.text; }
  std::string operator()(const Waiting& b) const {
    static constexpr std::array kWhy{"below min",   "last call",  "stopping", "backoff",
                                     "preparing",   "recovering", "late",     "spare",
                                     "quarantined", "fenced"};
    return std::string("Waiting: ") + kWhy.at(static_cast<std::size_t>(b.why)) + ", missing " +
           n(b.missing);
  }
  std::string operator()(const Prepare& b) const {
    return "Prepare " + n(b.attempt) + " g" + n(b.assignment.generation) + " group rank " +
           n(b.assignment.group_rank) + " of " + n(std::uint64_t{b.assignment.members.size()}) +
           " used " + n(b.assignment.restarts_used) + " " + to_word(b.assignment.reason);
  }
  std::string operator()(const Commit& b) const { return "Commit " + n(b.attempt); }
  std::string operator()(const StopOrder& b) const {
    return std::string("StopOrder") + (b.planned ? " planned: " : ": ") + b.reason;
  }
  std::string operator()(const HeartbeatAck& b) const { return "HeartbeatAck " + n(b.sequence); }
  std::string operator()(const JobEventNotice& b) const {
    return std::string("event ") + event_name(b.event.body);
  }
  std::string operator()(const OutcomeNotice& b) const {
    return std::string("Outcome ") + to_word(b.outcome.kind) + " " +
           std::to_string(b.outcome.exit_code) + " " + b.outcome.text;
  }
  std::string operator()(const Evicted& b) const { return "Evicted: " + b.reason; }
  std::string operator()(const Stale& b) const { return "Stale " + b.what; }
  std::string operator()(const ServerLeaving& b) const { return "ServerLeaving: " + b.reason; }
};

struct AgentEvents {
  std::string operator()(const agent::Started&) const { return "Started"; }
  std::string operator()(const agent::LinkUp&) const { return "LinkUp"; }
  std::string operator()(const agent::LinkDown& e) const { return "LinkDown " + e.reason; }
  std::string operator()(const agent::ServerSaid& e) const { return "<- " + text(e.message); }
  std::string operator()(const agent::MasterPortHeld&) const { return "MasterPortHeld"; }
  std::string operator()(const agent::MasterPortFailed&) const { return "MasterPortFailed"; }
  std::string operator()(const agent::DevicesFreed&) const { return "DevicesFreed"; }
  std::string operator()(const agent::WorkerSpawned& e) const {
    return "WorkerSpawned " + n(e.local_rank);
  }
  std::string operator()(const agent::WorkerEnded& e) const {
    return "WorkerEnded " + n(e.local_rank) + " " + status_text(e.status);
  }
  std::string operator()(const agent::WorkerGone& e) const {
    return "WorkerGone " + n(e.local_rank);
  }
  std::string operator()(const agent::WorkerUnkillable& e) const {
    return "WorkerUnkillable " + n(e.local_rank);
  }
  std::string operator()(const agent::SignalReceived& e) const {
    return "SignalReceived " + std::to_string(e.signal);
  }
  std::string operator()(const agent::GuardianLost&) const { return "GuardianLost"; }
  std::string operator()(const agent::FaultFired&) const { return "FaultFired"; }
  std::string operator()(const agent::ProgressSampled&) const { return "ProgressSampled"; }
  std::string operator()(const agent::StacksCaptured&) const { return "StacksCaptured"; }
  std::string operator()(const agent::Tick&) const { return "Tick"; }
};

struct AgentActions {
  std::string operator()(const agent::Connect& a) const {
    return "Connect in " + format_duration(a.delay);
  }
  std::string operator()(const agent::Disconnect&) const { return "Disconnect"; }
  std::string operator()(const agent::Send& a) const { return "-> " + text(a.message); }
  std::string operator()(const agent::HoldMasterPort&) const { return "HoldMasterPort"; }
  std::string operator()(const agent::ReleaseMasterPort&) const { return "ReleaseMasterPort"; }
  std::string operator()(const agent::StartWorkers& a) const {
    return "StartWorkers run " + a.run + " g" + n(a.generation) + ", " +
           n(std::uint64_t{a.workers.size()});
  }
  std::string operator()(const agent::SignalWorker& a) const {
    return "SignalWorker " + n(a.local_rank) + " " + signal_name(a.signal) +
           (a.scope == agent::SignalScope::kLeader        ? " leader"
            : a.scope == agent::SignalScope::kGroup       ? " group"
            : a.scope == agent::SignalScope::kBeyondGroup ? " beyond its group"
                                                          : " descendants");
  }
  std::string operator()(const agent::WriteStopFile& a) const {
    return "WriteStopFile " + n(a.local_rank);
  }
  std::string operator()(const agent::SuspendGuardian&) const { return "SuspendGuardian"; }
  std::string operator()(const agent::ResumeGuardian&) const { return "ResumeGuardian"; }
  std::string operator()(const agent::StartFaultClock&) const { return "StartFaultClock"; }
  std::string operator()(const agent::AwaitDevices&) const { return "AwaitDevices"; }
  std::string operator()(const agent::CaptureStacks&) const { return "CaptureStacks"; }
  std::string operator()(const agent::Emit& a) const {
    return std::string("Emit ") + event_name(a.event.body);
  }
  std::string operator()(const agent::Say& a) const { return "Say " + a.text; }
  std::string operator()(const agent::SayLingering& a) const {
    return "SayLingering " + n(a.local_rank);
  }
  std::string operator()(const agent::NoteFirstCause&) const { return "NoteFirstCause"; }
  std::string operator()(const agent::Finish& a) const {
    return "Finish " + std::to_string(a.exit_code) + " " + to_word(a.exit_class) + " " + a.text +
           (a.outcome ? std::string(" outcome ") + to_word(a.outcome->kind) : "");
  }
};

struct ServerEvents {
  std::string operator()(const rendezvous::AgentSaid& e) const {
    return "s" + n(e.session) + " " + text(e.message);
  }
  std::string operator()(const rendezvous::StreamLost& e) const {
    return "StreamLost s" + n(e.session);
  }
  std::string operator()(const rendezvous::OperatorAsked& e) const {
    static constexpr std::array kOrders{"stop", "scale", "drain", "restart"};
    static_assert(kOrders.size() == std::variant_size_v<rendezvous::Order>);
    std::string line = std::string("OperatorAsked ") + kOrders.at(e.order.index());
    if (const auto* scale = std::get_if<rendezvous::ScaleJob>(&e.order)) {
      line += " " + n(std::uint64_t{scale->min_nodes}) + ":" + n(std::uint64_t{scale->max_nodes});
    }
    if (const auto* drain = std::get_if<rendezvous::DrainNode>(&e.order)) line += " " + drain->node;
    return line;
  }
  std::string operator()(const rendezvous::ServerStopping&) const { return "ServerStopping"; }
  std::string operator()(const rendezvous::HostStalled& e) const {
    return "HostStalled " + format_duration(e.by);
  }
  std::string operator()(const rendezvous::JournalRead& e) const {
    return "JournalRead, runs: " + n(std::uint64_t{e.runs.size()});
  }
  std::string operator()(const rendezvous::Tick&) const { return "Tick"; }
};

struct ServerActions {
  std::string operator()(const rendezvous::Send& a) const {
    return "-> s" + n(a.session) + " " + text(a.message);
  }
  std::string operator()(const rendezvous::CloseSession& a) const {
    return "CloseSession s" + n(a.session);
  }
  std::string operator()(const rendezvous::Persist& a) const {
    return "Persist run " + a.record.run + " g" + n(a.record.generation) + " used " +
           n(a.record.restarts_used) + " e" + n(a.record.epoch) +
           (a.record.outcome ? " outcome" : "");
  }
  std::string operator()(const rendezvous::Forget& a) const { return "Forget run " + a.run; }
  std::string operator()(const rendezvous::Emit& a) const {
    std::string line = std::string("Emit ") + event_name(a.event.body);
    if (a.event.node) line += " " + *a.event.node;
    return line;
  }
  std::string operator()(const rendezvous::OpenStore& a) const {
    return "OpenStore g" + n(a.generation);
  }
  std::string operator()(const rendezvous::CloseStore& a) const {
    return "CloseStore g" + n(a.generation);
  }
  std::string operator()(const rendezvous::ReplyOperator& a) const {
    return std::string("ReplyOperator ") + (a.answer.accepted() ? "yes: " : "no: ") + a.answer.text;
  }
  std::string operator()(const rendezvous::JobOver& a) const {
    return std::string("JobOver ") + to_word(a.outcome.kind) + " run " + a.run;
  }
};

}  // namespace

std::string text(const AgentMessage& message) {
  return head(message.envelope) + std::visit(Bodies{}, message.body);
}
std::string text(const ServerMessage& message) {
  return head(message.envelope) + std::visit(Bodies{}, message.body);
}
std::string text(const agent::Event& event) {
  return std::visit(AgentEvents{}, event);
}
std::string text(const agent::Action& action) {
  return std::visit(AgentActions{}, action);
}
std::string text(const rendezvous::Event& event) {
  return std::visit(ServerEvents{}, event);
}
std::string text(const rendezvous::Action& action) {
  return std::visit(ServerActions{}, action);
}

}  // namespace muster::sim
