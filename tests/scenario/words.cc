// SPDX-License-Identifier: Apache-2.0
#include "tests/scenario/words.h"

namespace muster::scenario {

namespace {

std::string number(std::int64_t value) {
  return std::to_string(value);
}

std::string ranks_words(const std::vector<MemberRanks>& members) {
  std::string text;
  for (const MemberRanks& member : members) {
    if (!text.empty()) text += ' ';
    text += member.node + ":" + number(member.first_rank);
    if (member.count > 1) text += "-" + number(member.first_rank + member.count - 1);
  }
  return text;
}

std::string tail(const std::string& key, const std::string& value) {
  return value.empty() ? "" : " " + key + "=\"" + value + "\"";
}

const char* why_word(Waiting::Why why) {
  switch (why) {
    case Waiting::Why::kBelowMin: return "below_min";
    case Waiting::Why::kLastCall: return "last_call";
    case Waiting::Why::kStopping: return "stopping";
    case Waiting::Why::kBackoff: return "backoff";
    case Waiting::Why::kPreparing: return "preparing";
    case Waiting::Why::kRecovering: return "recovering";
    case Waiting::Why::kLate: return "late";
    case Waiting::Why::kSpare: return "spare";
    case Waiting::Why::kQuarantined: return "quarantined";
    case Waiting::Why::kFenced: return "fenced";
  }
  return "?";
}

const char* why_word(JoinRefused::Why why) {
  switch (why) {
    case JoinRefused::Why::kOtherJob: return "other_job";
    case JoinRefused::Why::kOtherProgram: return "other_program";
    case JoinRefused::Why::kOtherNodes: return "other_nodes";
    case JoinRefused::Why::kOtherFaultPlan: return "other_fault_plan";
    case JoinRefused::Why::kDuplicateName: return "duplicate_name";
    case JoinRefused::Why::kDuplicateNodeRank: return "duplicate_node_rank";
    case JoinRefused::Why::kFull: return "full";
    case JoinRefused::Why::kNotAllowed: return "not_allowed";
    case JoinRefused::Why::kInvalid: return "invalid";
    case JoinRefused::Why::kNotYet: return "not_yet";
  }
  return "?";
}

const char* why_word(event::NodeLeft::Why why) {
  switch (why) {
    case event::NodeLeft::Why::kLeave: return "leave";
    case event::NodeLeft::Why::kLost: return "lost";
    case event::NodeLeft::Why::kEvicted: return "evicted";
    case event::NodeLeft::Why::kQuarantined: return "quarantined";
    case event::NodeLeft::Why::kPreempted: return "preempted";
    case event::NodeLeft::Why::kDrained: return "drained";
  }
  return "?";
}

struct EventWords {
  std::string operator()(const event::JobStarted& e) const {
    return " nodes=" + number(e.min_nodes) + ":" + number(e.max_nodes) +
           " max_restarts=" + number(e.max_restarts);
  }
  std::string operator()(const event::NodeJoined& e) const {
    return " addr=" + e.addr + " slots=" + number(e.slots) + (e.spare ? " spare" : " member") +
           " incarnation=" + number(static_cast<std::int64_t>(e.incarnation));
  }
  std::string operator()(const event::NodeLeft& e) const {
    return std::string(" ") + why_word(e.why);
  }
  std::string operator()(const event::GenerationFormed& e) const {
    return std::string(" reason=") + to_word(e.reason) + " world=" + number(e.world_size) + " [" +
           ranks_words(e.nodes) + "] master=" + e.master_addr + ":" + number(e.master_port);
  }
  std::string operator()(const event::WorkerStarted& e) const { return " " + e.argv0; }
  std::string operator()(const event::WorkerEnded& e) const {
    std::string text;
    if (e.exit_code) text += " code=" + number(*e.exit_code);
    if (e.signal) text += " signal=" + signal_name(*e.signal);
    return text + (e.torn_down ? " torn_down" : "");
  }
  std::string operator()(const event::GenerationRunning& e) const {
    return " form=" + format_duration(e.form) + " spawn=" + format_duration(e.spawn);
  }
  std::string operator()(const event::GenerationFailed& e) const {
    std::string text = " first: " + words(e.first_cause);
    for (const Failure& victim : e.victims)
      text += "; victim: " + words(victim);
    return text;
  }
  std::string operator()(const event::RestartScheduled& e) const {
    return " used=" + number(e.restarts_used) + "/" + number(e.max_restarts) +
           (e.charged ? " charged" : " free") + " delay=" + format_duration(e.delay);
  }
  std::string operator()(const event::Recovered& e) const {
    return " detect=" + format_duration(e.detect) + " stop=" + format_duration(e.stop) +
           " form=" + format_duration(e.form) + " spawn=" + format_duration(e.spawn) +
           " total=" + format_duration(e.total) +
           (e.first_progress ? " first_progress=" + format_duration(*e.first_progress) : "");
  }
  std::string operator()(const event::ChaosHit& e) const {
    return " " + e.fault + " hit " + e.target;
  }
  std::string operator()(const event::ChaosMissed& e) const {
    return " " + e.fault + " on " + e.target;
  }
  std::string operator()(const event::StateLost& e) const { return " " + e.reason; }
  std::string operator()(const event::NodeQuarantined& e) const {
    return " until=" + std::to_string(e.until_us) + " " + e.reason;
  }
  std::string operator()(const event::ServerRecovered& e) const { return " " + e.reason; }
  std::string operator()(const event::ServerGoing& e) const { return " " + e.reason; }
  std::string operator()(const event::JobFinished& e) const { return " " + words(e.outcome); }
};

std::string prepare_words(const Prepare& prepare) {
  const Assignment& a = prepare.assignment;
  std::string text = "prepare attempt=" + number(prepare.attempt) + " reason=" + to_word(a.reason) +
                     " world=" + number(a.world_size) + " [" + ranks_words(a.members) +
                     "] group_rank=" + number(a.group_rank) + " master=" + a.master_addr +
                     " restarts=" + number(a.restarts_used) + "/" + number(a.max_restarts);
  for (const ArmedFault& armed : a.faults) {
    text += " fault" + number(armed.fault.index) +
            (armed.rank ? "@rank" + number(*armed.rank) : "@agent");
  }
  return text;
}

std::string waiting_words(const Waiting& waiting) {
  return std::string("waiting ") + why_word(waiting.why) + " joined=" + joined(waiting.joined) +
         " missing=" + number(waiting.missing) +
         " remaining=" + format_duration(waiting.remaining) +
         (waiting.obstacle.empty() ? "" : " obstacle=\"" + waiting.obstacle + "\"");
}

struct ServerWords {
  std::string operator()(const JoinAccepted& m) const {
    return std::string("join_accepted ") + (m.role == Role::kSpare ? "spare" : "member");
  }
  std::string operator()(const JoinRefused& m) const {
    return std::string("join_refused ") + why_word(m.why) + " exit=" + number(m.exit_code) + ": " +
           m.text;
  }
  std::string operator()(const Waiting& m) const { return waiting_words(m); }
  std::string operator()(const Prepare& m) const { return prepare_words(m); }
  std::string operator()(const Commit& m) const {
    return "commit attempt=" + number(m.attempt) + " port=" + number(m.master_port);
  }
  std::string operator()(const StopOrder& m) const {
    return std::string("stop_order ") + (m.planned ? "planned" : "at_once") + ": " + m.reason;
  }
  std::string operator()(const HeartbeatAck& m) const {
    return "heartbeat_ack " + number(static_cast<std::int64_t>(m.sequence));
  }
  std::string operator()(const JobEventNotice& m) const {
    return "notice " + words(m.event) +
           (m.age > Duration{0} ? " age=" + format_duration(m.age) : "");
  }
  std::string operator()(const OutcomeNotice& m) const { return "outcome " + words(m.outcome); }
  std::string operator()(const Evicted& m) const {
    return (m.drained ? "evicted, drained: " : "evicted: ") + m.reason;
  }
  std::string operator()(const Stale& m) const {
    return "stale " + m.what + ", known: run=" + m.known.run + " g" + number(m.known.generation);
  }
  std::string operator()(const ServerLeaving& m) const { return "server_leaving: " + m.reason; }
};

}  // namespace

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "" : ",") + name;
  return text.empty() ? "-" : text;
}

std::string words(const Failure& failure) {
  std::string text = to_word(failure.kind);
  text += " node=" + failure.node;
  if (failure.rank) text += " rank=" + number(*failure.rank);
  if (failure.exit_code) text += " code=" + number(*failure.exit_code);
  if (failure.signal) text += " signal=" + signal_name(*failure.signal);
  if (failure.secondary) text += " secondary";
  if (failure.ambiguous) text += " ambiguous";
  return text + tail("detail", failure.detail) + tail("stderr", failure.stderr_tail);
}

std::string words(const Outcome& outcome) {
  std::string text = to_word(outcome.kind);
  text += " exit=" + number(outcome.exit_code) + " class=" + to_word(outcome.exit_class) +
          " restarts=" + number(outcome.restarts_used) + "/" + number(outcome.max_restarts);
  return text + tail("text", outcome.text);
}

std::string words(const JobEvent& event) {
  std::string text = event_name(event.body);
  if (event.generation) text += " g" + number(*event.generation);
  if (event.node) text += " node=" + *event.node;
  if (event.rank) text += " rank=" + number(*event.rank);
  return text + std::visit(EventWords{}, event.body);
}

std::string words(const ServerMessage& message) {
  return "g" + number(message.envelope.generation) + " " + std::visit(ServerWords{}, message.body);
}

}  // namespace muster::scenario
