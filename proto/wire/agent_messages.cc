// SPDX-License-Identifier: Apache-2.0
//
// Agent to server, and the store's requests that ride along.
#include <utility>

#include "proto/wire/job.h"
#include "proto/wire/messages.h"

namespace muster::wire {

void write(const Envelope& from, v1::Envelope& to) {
  to.set_job(from.job);
  to.set_run(from.run);
  to.set_generation(from.generation);
  to.set_node(from.node);
  to.set_incarnation(from.incarnation);
  to.set_epoch(from.epoch);
}

Envelope read(const v1::Envelope& from, Border& border) {
  Envelope to;
  to.job = border.name("job", from.job());
  to.run = border.name("run", from.run());
  to.generation = border.generation("generation", from.generation());
  to.node = border.name("node", from.node());
  to.incarnation = from.incarnation();
  to.epoch = from.epoch();
  return to;
}

void write(const RankProgress& from, v1::RankProgress& to) {
  to.set_rank(from.rank);
  to.set_step(from.step);
  if (from.checkpoint_step) to.set_checkpoint_step(*from.checkpoint_step);
  to.set_age_ns(from.age.count());
}

RankProgress read(const v1::RankProgress& from, Border& border) {
  RankProgress to;
  to.rank = border.between("rank", from.rank(), 0U, kMaxWorldSize - 1);
  to.step = from.step();
  if (from.has_checkpoint_step()) to.checkpoint_step = from.checkpoint_step();
  to.age = border.duration("age_ns", from.age_ns());
  return to;
}

namespace {

static_assert(v1::StoreRequest::Op_MAX == static_cast<int>(StoreRequest::Op::kCancel) + 1);

void put(const Join& from, v1::AgentMessage& message) {
  auto& to = *message.mutable_join();
  write(from.spec, *to.mutable_spec());
  write(from.node, *to.mutable_node());
  if (!from.reattach) return;
  auto& reattach = *to.mutable_reattach();
  reattach.set_run(from.reattach->run);
  reattach.set_incarnation(from.reattach->incarnation);
  reattach.set_generation(from.reattach->generation);
  reattach.set_workers_running(from.reattach->workers_running);
  for (const std::uint32_t rank : from.reattach->ranks_done)
    reattach.add_ranks_done(rank);
  reattach.set_restarts_used(from.reattach->restarts_used);
  reattach.set_epoch(from.reattach->epoch);
  reattach.set_leaving(from.reattach->leaving);
}
Reattach get(const v1::Reattach& from, Border& border) {
  Reattach to;
  to.run = border.name("run", from.run());
  to.incarnation = from.incarnation();
  to.generation = border.generation("generation", from.generation());
  to.workers_running = from.workers_running();
  if (border.count("ranks_done", from.ranks_done_size(), kMaxSlots)) {
    for (const std::uint32_t rank : from.ranks_done()) {
      to.ranks_done.push_back(border.between("ranks_done", rank, 0U, kMaxWorldSize - 1));
    }
  }
  to.restarts_used = from.restarts_used();
  to.epoch = from.epoch();
  to.leaving = from.leaving();
  return to;
}
Join get(const v1::Join& from, Border& border) {
  Join to;
  if (border.present("spec", from.has_spec())) {
    to.spec = border.within("spec", [&] { return read(from.spec(), border); });
  }
  if (border.present("node", from.has_node())) {
    to.node = border.within("node", [&] { return read(from.node(), border); });
  }
  if (from.has_reattach()) {
    to.reattach = border.within("reattach", [&] { return get(from.reattach(), border); });
  }
  return to;
}

void put(const Heartbeat& from, v1::AgentMessage& message) {
  auto& to = *message.mutable_heartbeat();
  to.set_sequence(from.sequence);
  for (const RankProgress& progress : from.progress)
    write(progress, *to.add_progress());
  to.set_suspended(from.suspended);
}
Heartbeat get(const v1::Heartbeat& from, Border& border) {
  Heartbeat to;
  to.sequence = from.sequence();
  if (border.count("progress", from.progress_size(), kMaxSlots)) {
    for (const v1::RankProgress& progress : from.progress()) {
      to.progress.push_back(border.within("progress", [&] { return read(progress, border); }));
    }
  }
  to.suspended = from.suspended();
  return to;
}

void put(const PrepareAnswer& from, v1::AgentMessage& message) {
  auto& to = *message.mutable_prepare_answer();
  to.set_attempt(from.attempt);
  to.set_accepted(from.accepted);
  to.set_master_port(from.master_port);
  to.set_reason(cut(from.reason));
}
PrepareAnswer get(const v1::PrepareAnswer& from, Border& border) {
  return {from.attempt(), from.accepted(), border.port("master_port", from.master_port()),
          border.text("reason", from.reason())};
}

void put(const WorkersStarted& from, v1::AgentMessage& message) {
  auto& to = *message.mutable_workers_started();
  for (const StartedWorker& worker : from.workers) {
    auto& one = *to.add_workers();
    one.set_rank(worker.rank);
    one.set_pid(worker.pid);
  }
  to.set_spawn_ns(from.spawn.count());
}
WorkersStarted get(const v1::WorkersStarted& from, Border& border) {
  WorkersStarted to;
  if (border.count("workers", from.workers_size(), kMaxSlots)) {
    for (const v1::StartedWorker& worker : from.workers()) {
      to.workers.push_back({border.between("rank", worker.rank(), 0U, kMaxWorldSize - 1),
                            border.pid("pid", worker.pid())});
    }
  }
  to.spawn = border.duration("spawn_ns", from.spawn_ns());
  return to;
}

void put(const WorkerExited& from, v1::AgentMessage& message) {
  auto& to = *message.mutable_worker_exited();
  to.set_rank(from.rank);
  to.set_local_rank(from.local_rank);
  to.set_pid(from.pid);
  write(from.status, *to.mutable_status());
  to.set_torn_down(from.torn_down);
  to.set_oom(from.oom);
  to.set_agent_signaled(from.agent_signaled);
  to.set_order(from.order);
  to.set_age_ns(from.age.count());
  to.set_run_ns(from.run.count());
  to.set_max_rss_bytes(from.max_rss_bytes);
  to.set_stderr_tail(cut_front(from.stderr_tail, kMaxStderrTailBytes));
  to.set_error_file(cut(from.error_file, kMaxErrorFileBytes));
  to.set_secondary(from.secondary);
  to.set_parting(from.parting);
  to.set_stops_agent(from.stops_agent);
  to.set_stacks(cut(from.stacks));
  if (from.hang) write(*from.hang, *to.mutable_hang());
  if (from.spoke) to.set_spoke_ns(from.spoke->count());
}
WorkerExited get(const v1::WorkerExited& from, Border& border) {
  WorkerExited to;
  to.rank = border.between("rank", from.rank(), 0U, kMaxWorldSize - 1);
  to.local_rank = border.between("local_rank", from.local_rank(), 0U, kMaxSlots - 1);
  to.pid = border.pid("pid", from.pid());
  if (border.present("status", from.has_status())) {
    to.status = border.within("status", [&] { return read(from.status(), border); });
  }
  to.torn_down = from.torn_down();
  to.oom = from.oom();
  to.agent_signaled = from.agent_signaled();
  to.order = from.order();
  to.age = border.duration("age_ns", from.age_ns());
  to.run = border.duration("run_ns", from.run_ns());
  to.max_rss_bytes = from.max_rss_bytes();
  to.stderr_tail = border.text("stderr_tail", from.stderr_tail(), kMaxStderrTailBytes);
  to.error_file = border.text("error_file", from.error_file(), kMaxErrorFileBytes);
  to.secondary = from.secondary();
  to.parting = from.parting();
  to.stops_agent = from.stops_agent();
  to.stacks = border.text("stacks", from.stacks());
  if (from.has_hang()) to.hang = read(from.hang());
  if (from.has_spoke_ns()) to.spoke = border.duration("spoke_ns", from.spoke_ns());
  return to;
}

void put(const StopConfirmed& from, v1::AgentMessage& message) {
  message.mutable_stop_confirmed()->set_detached(from.detached);
}
StopConfirmed get(const v1::StopConfirmed& from, Border&) {
  return {from.detached()};
}

void put(const Leave& from, v1::AgentMessage& message) {
  message.mutable_leave()->set_signal(from.signal);
  message.mutable_leave()->set_reason(cut(from.reason));
  message.mutable_leave()->set_age_ns(from.age.count());
}
Leave get(const v1::Leave& from, Border& border) {
  return {border.between("signal", from.signal(), 0, 64), border.text("reason", from.reason()),
          border.duration("age_ns", from.age_ns())};
}

void put(const ChaosFired& from, v1::AgentMessage& message) {
  auto& to = *message.mutable_chaos_fired();
  to.set_fault_index(from.fault_index);
  if (from.rank) to.set_rank(*from.rank);
}
ChaosFired get(const v1::ChaosFired& from, Border& border) {
  ChaosFired to;
  to.fault_index = from.fault_index();
  if (from.has_rank()) to.rank = border.between("rank", from.rank(), 0U, kMaxWorldSize - 1);
  return to;
}

void put(const OutcomeSeen&, v1::AgentMessage& message) {
  message.mutable_outcome_seen();
}

StoreRequest get(const v1::StoreRequest& from, Border& border) {
  StoreRequest to;
  to.id = from.id();
  to.generation = border.generation("generation", from.generation());
  to.op = border.enumerator("op", from.op(), StoreRequest::Op::kCancel);
  to.key = border.text("key", from.key(), kMaxStoreKeyBytes);
  if (to.key.empty()) border.complain("key", "missing");
  to.value = border.text("value", from.value(), kMaxStoreValueBytes);
  to.delta = from.delta();
  to.wait = border.duration("wait_ns", from.wait_ns());
  return to;
}

AgentBody body_of(const v1::AgentMessage& from, Border& border) {
  using M = v1::AgentMessage;
  const auto in = [&](const char* name, const auto& body) {
    return border.within(name, [&] { return AgentBody(get(body, border)); });
  };
  switch (from.body_case()) {
    case M::kJoin: return in("join", from.join());
    case M::kHeartbeat: return in("heartbeat", from.heartbeat());
    case M::kPrepareAnswer: return in("prepare_answer", from.prepare_answer());
    case M::kWorkersStarted: return in("workers_started", from.workers_started());
    case M::kWorkerExited: return in("worker_exited", from.worker_exited());
    case M::kStopConfirmed: return in("stop_confirmed", from.stop_confirmed());
    case M::kLeave: return in("leave", from.leave());
    case M::kChaosFired: return in("chaos_fired", from.chaos_fired());
    case M::kOutcomeSeen: return OutcomeSeen{};
    case M::kStore:
    case M::BODY_NOT_SET: break;
  }
  border.complain("body", "missing or unknown");
  return OutcomeSeen{};
}

}  // namespace

v1::AgentMessage to_wire(const AgentMessage& message) {
  v1::AgentMessage to;
  write(message.envelope, *to.mutable_envelope());
  std::visit([&](const auto& body) { put(body, to); }, message.body);
  return to;
}

v1::AgentMessage to_wire(const StoreRequest& request) {
  v1::AgentMessage message;
  auto& to = *message.mutable_store();
  to.set_id(request.id);
  to.set_generation(request.generation);
  to.set_op(to_enum<v1::StoreRequest::Op>(request.op));
  to.set_key(request.key);
  to.set_value(request.value);
  to.set_delta(request.delta);
  to.set_wait_ns(request.wait.count());
  return message;
}

absl::StatusOr<FromAgent> from_wire(const v1::AgentMessage& message) {
  Border border;
  FromAgent to;
  if (message.body_case() == v1::AgentMessage::kStore) {
    to = border.within("store", [&] { return get(message.store(), border); });
  } else {
    AgentMessage out;
    border.present("envelope", message.has_envelope());
    out.envelope = border.within("envelope", [&] { return read(message.envelope(), border); });
    out.body = body_of(message, border);
    to = std::move(out);
  }
  if (!border.ok()) return border.status();
  return to;
}

}  // namespace muster::wire
