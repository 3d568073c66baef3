// SPDX-License-Identifier: Apache-2.0
//
// Server to agent, and the store's replies that ride along.
#include <utility>

#include "proto/wire/job.h"
#include "proto/wire/messages.h"

namespace muster::wire {
namespace {

static_assert(v1::Role_MAX == static_cast<int>(Role::kSpare) + 1);
static_assert(v1::JoinRefused::Why_MAX == static_cast<int>(JoinRefused::Why::kNotYet) + 1);
static_assert(v1::Waiting::Why_MAX == static_cast<int>(Waiting::Why::kFenced) + 1);
static_assert(v1::StopOrder::Mode_MAX == static_cast<int>(StopMode::kDetach) + 1);
static_assert(v1::StoreReply::Status_MAX == static_cast<int>(StoreReply::Status::kRefused) + 1);

}  // namespace

void write(const Waiting& from, v1::Waiting& to) {
  to.set_why(to_enum<v1::Waiting::Why>(from.why));
  to.set_min_nodes(from.min_nodes);
  to.set_max_nodes(from.max_nodes);
  for (const NodeName& node : from.joined)
    to.add_joined(node);
  to.set_missing(from.missing);
  to.set_remaining_ns(from.remaining.count());
  to.set_obstacle(cut(from.obstacle));
}

Waiting read(const v1::Waiting& from, Border& border) {
  Waiting to;
  to.why = border.enumerator("why", from.why(), Waiting::Why::kFenced);
  to.min_nodes = from.min_nodes();
  to.max_nodes = from.max_nodes();
  if (border.count("joined", from.joined_size(), kMaxMembers)) {
    for (const std::string& node : from.joined())
      to.joined.push_back(border.name("joined", node));
  }
  to.missing = from.missing();
  to.remaining = border.duration("remaining_ns", from.remaining_ns());
  to.obstacle = border.text("obstacle", from.obstacle());
  return to;
}

namespace {

void put(const JoinAccepted& from, v1::ServerMessage& message) {
  auto& to = *message.mutable_join_accepted();
  to.set_server_instance(from.server_instance);
  to.set_observed_addr(from.observed_addr);
  to.set_role(to_enum<v1::Role>(from.role));
  write(from.policy, *to.mutable_policy());
}
JoinAccepted get(const v1::JoinAccepted& from, Border& border) {
  JoinAccepted to;
  to.server_instance = border.name("server_instance", from.server_instance());
  to.observed_addr = border.name("observed_addr", from.observed_addr());
  to.role = border.enumerator("role", from.role(), Role::kSpare);
  if (border.present("policy", from.has_policy())) {
    to.policy = border.within("policy", [&] { return read(from.policy(), border); });
  }
  return to;
}

void put(const JoinRefused& from, v1::ServerMessage& message) {
  auto& to = *message.mutable_join_refused();
  to.set_why(to_enum<v1::JoinRefused::Why>(from.why));
  to.set_text(cut(from.text));
  to.set_exit_code(from.exit_code);
}
JoinRefused get(const v1::JoinRefused& from, Border& border) {
  // 0 would make a success of it.
  return {border.enumerator("why", from.why(), JoinRefused::Why::kNotYet),
          border.text("text", from.text()), border.between("exit_code", from.exit_code(), 1, 255)};
}

void put(const Waiting& from, v1::ServerMessage& message) {
  write(from, *message.mutable_waiting());
}
Waiting get(const v1::Waiting& from, Border& border) {
  return read(from, border);
}

void put(const Prepare& from, v1::ServerMessage& message) {
  auto& to = *message.mutable_prepare();
  to.set_attempt(from.attempt);
  write(from.assignment, *to.mutable_assignment());
}
Prepare get(const v1::Prepare& from, Border& border) {
  Prepare to;
  to.attempt = from.attempt();
  if (border.present("assignment", from.has_assignment())) {
    to.assignment = border.within("assignment", [&] { return read(from.assignment(), border); });
  }
  return to;
}

void put(const Commit& from, v1::ServerMessage& message) {
  message.mutable_commit()->set_attempt(from.attempt);
  message.mutable_commit()->set_master_port(from.master_port);
}
Commit get(const v1::Commit& from, Border& border) {
  return {from.attempt(), border.port("master_port", from.master_port())};
}

void put(const StopOrder& from, v1::ServerMessage& message) {
  auto& to = *message.mutable_stop_order();
  to.set_mode(to_enum<v1::StopOrder::Mode>(from.mode));
  to.set_planned(from.planned);
  to.set_reason(cut(from.reason));
}
StopOrder get(const v1::StopOrder& from, Border& border) {
  return {border.enumerator("mode", from.mode(), StopMode::kDetach), from.planned(),
          border.text("reason", from.reason())};
}

void put(const HeartbeatAck& from, v1::ServerMessage& message) {
  message.mutable_heartbeat_ack()->set_sequence(from.sequence);
}
HeartbeatAck get(const v1::HeartbeatAck& from, Border&) {
  return {from.sequence()};
}

void put(const JobEventNotice& from, v1::ServerMessage& message) {
  write(from.event, *message.mutable_job_event()->mutable_event());
  message.mutable_job_event()->set_age_ns(from.age.count());
}
JobEventNotice get(const v1::JobEventNotice& from, Border& border) {
  JobEventNotice to;
  if (border.present("event", from.has_event())) {
    to.event = border.within("event", [&] { return read(from.event(), border); });
  }
  to.age = border.duration("age_ns", from.age_ns());
  return to;
}

void put(const OutcomeNotice& from, v1::ServerMessage& message) {
  write(from.outcome, *message.mutable_outcome()->mutable_outcome());
}
OutcomeNotice get(const v1::OutcomeNotice& from, Border& border) {
  OutcomeNotice to;
  if (border.present("outcome", from.has_outcome())) {
    to.outcome = border.within("outcome", [&] { return read(from.outcome(), border); });
  }
  return to;
}

void put(const Evicted& from, v1::ServerMessage& message) {
  message.mutable_evicted()->set_reason(cut(from.reason));
  message.mutable_evicted()->set_drained(from.drained);
}
Evicted get(const v1::Evicted& from, Border& border) {
  return {border.text("reason", from.reason()), from.drained()};
}

void put(const Stale& from, v1::ServerMessage& message) {
  message.mutable_stale()->set_what(cut(from.what));
  write(from.known, *message.mutable_stale()->mutable_known());
}
Stale get(const v1::Stale& from, Border& border) {
  Stale to;
  to.what = border.text("what", from.what());
  border.present("known", from.has_known());
  to.known = border.within("known", [&] { return read(from.known(), border); });
  return to;
}

void put(const ServerLeaving& from, v1::ServerMessage& message) {
  message.mutable_server_leaving()->set_reason(cut(from.reason));
}
ServerLeaving get(const v1::ServerLeaving& from, Border& border) {
  return {border.text("reason", from.reason())};
}

StoreReply get(const v1::StoreReply& from, Border& border) {
  StoreReply to;
  to.id = from.id();
  to.status = border.enumerator("status", from.status(), StoreReply::Status::kRefused);
  to.value = border.text("value", from.value(), kMaxStoreValueBytes);
  to.number = from.number();
  to.text = border.text("text", from.text());
  return to;
}

ServerBody body_of(const v1::ServerMessage& from, Border& border) {
  using M = v1::ServerMessage;
  const auto in = [&](const char* name, const auto& body) {
    return border.within(name, [&] { return ServerBody(get(body, border)); });
  };
  switch (from.body_case()) {
    case M::kJoinAccepted: return in("join_accepted", from.join_accepted());
    case M::kJoinRefused: return in("join_refused", from.join_refused());
    case M::kWaiting: return in("waiting", from.waiting());
    case M::kPrepare: return in("prepare", from.prepare());
    case M::kCommit: return in("commit", from.commit());
    case M::kStopOrder: return in("stop_order", from.stop_order());
    case M::kHeartbeatAck: return in("heartbeat_ack", from.heartbeat_ack());
    case M::kJobEvent: return in("job_event", from.job_event());
    case M::kOutcome: return in("outcome", from.outcome());
    case M::kEvicted: return in("evicted", from.evicted());
    case M::kStale: return in("stale", from.stale());
    case M::kServerLeaving: return in("server_leaving", from.server_leaving());
    case M::kStore:
    case M::BODY_NOT_SET: break;
  }
  border.complain("body", "missing or unknown");
  return HeartbeatAck{};
}

}  // namespace

v1::ServerMessage to_wire(const ServerMessage& message) {
  v1::ServerMessage to;
  write(message.envelope, *to.mutable_envelope());
  std::visit([&](const auto& body) { put(body, to); }, message.body);
  return to;
}

v1::ServerMessage to_wire(const StoreReply& reply) {
  v1::ServerMessage message;
  auto& to = *message.mutable_store();
  to.set_id(reply.id);
  to.set_status(to_enum<v1::StoreReply::Status>(reply.status));
  to.set_value(reply.value);
  to.set_number(reply.number);
  to.set_text(cut(reply.text));
  return message;
}

absl::StatusOr<FromServer> from_wire(const v1::ServerMessage& message) {
  Border border;
  FromServer to;
  if (message.body_case() == v1::ServerMessage::kStore) {
    to = border.within("store", [&] { return get(message.store(), border); });
  } else {
    ServerMessage out;
    border.present("envelope", message.has_envelope());
    out.envelope = border.within("envelope", [&] { return read(message.envelope(), border); });
    out.body = body_of(message, border);
    to = std::move(out);
  }
  if (!border.ok()) return border.status();
  return to;
}

}  // namespace muster::wire
