// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/control_wire.h"

#include <utility>

#include "proto/wire/job.h"
#include "proto/wire/messages.h"

namespace muster::rendezvous {
namespace {

static_assert(v1::Phase_MAX == static_cast<int>(Phase::kFinished) + 1);

void write(const MemberView& from, v1::MemberDescription& to) {
  to.set_node(from.node);
  to.set_host(from.host);
  to.set_addr(from.addr);
  to.set_slots(from.slots);
  to.set_role(wire::to_enum<v1::Role>(from.role));
  to.set_incarnation(from.incarnation);
  to.set_connected(from.connected);
  if (from.ranks) wire::write(*from.ranks, *to.mutable_ranks());
  to.set_heartbeat_age_ns(from.heartbeat_age.count());
  for (const RankProgress& progress : from.progress)
    wire::write(progress, *to.add_progress());
  to.set_gpus(from.gpus);
  to.set_gpu(from.gpu);
  to.set_suspended(from.suspended);
}

MemberView read(const v1::MemberDescription& from, wire::Border& border) {
  MemberView to;
  to.node = border.name("node", from.node());
  to.host = border.name("host", from.host());
  to.addr = border.name("addr", from.addr());
  to.slots = from.slots();
  to.role = border.enumerator("role", from.role(), Role::kSpare);
  to.incarnation = from.incarnation();
  to.connected = from.connected();
  if (from.has_ranks()) {
    to.ranks = border.within("ranks", [&] { return wire::read(from.ranks(), border); });
  }
  to.heartbeat_age = border.duration("heartbeat_age_ns", from.heartbeat_age_ns());
  if (border.count("progress", from.progress_size(), wire::kMaxSlots)) {
    for (const v1::RankProgress& progress : from.progress()) {
      to.progress.push_back(
          border.within("progress", [&] { return wire::read(progress, border); }));
    }
  }
  to.gpus = from.gpus();
  to.gpu = border.name("gpu", from.gpu());
  to.suspended = from.suspended();
  return to;
}

void write(const RecoverySummary& from, v1::RecoverySummary& to) {
  to.set_count(from.count);
  to.set_detect_ns(from.detect.count());
  to.set_stop_ns(from.stop.count());
  to.set_form_ns(from.form.count());
  to.set_spawn_ns(from.spawn.count());
  to.set_total_ns(from.total.count());
}

RecoverySummary read(const v1::RecoverySummary& from, wire::Border& border) {
  if (from.count() == 0) border.complain("count", "is 0; then it would not be there");
  return {from.count(),
          border.duration("detect_ns", from.detect_ns()),
          border.duration("stop_ns", from.stop_ns()),
          border.duration("form_ns", from.form_ns()),
          border.duration("spawn_ns", from.spawn_ns()),
          border.duration("total_ns", from.total_ns())};
}

}  // namespace

void write(const JobView& from, v1::JobDescription& to) {
  wire::write(from.spec, *to.mutable_spec());
  to.set_run(from.run);
  to.set_epoch(from.epoch);
  to.set_phase(wire::to_enum<v1::Phase>(from.phase));
  wire::write(from.waiting, *to.mutable_waiting());
  to.set_generation(from.generation);
  to.set_world_size(from.world_size);
  to.set_master_addr(from.master_addr);
  to.set_master_port(from.master_port);
  to.set_restarts_used(from.restarts_used);
  for (const MemberView& member : from.members)
    write(member, *to.add_members());
  if (from.last_failure) wire::write(*from.last_failure, *to.mutable_last_failure());
  if (from.outcome) wire::write(*from.outcome, *to.mutable_outcome());
  to.set_age_ns(from.age.count());
  to.set_goodput(from.goodput);
  if (from.recoveries.count > 0) write(from.recoveries, *to.mutable_recoveries());
}

JobView read(const v1::JobDescription& from, wire::Border& border) {
  JobView to;
  if (border.present("spec", from.has_spec())) {
    to.spec = border.within("spec", [&] { return wire::read(from.spec(), border); });
  }
  to.run = border.name("run", from.run());
  to.epoch = from.epoch();
  to.phase = border.enumerator("phase", from.phase(), Phase::kFinished);
  if (border.present("waiting", from.has_waiting())) {
    to.waiting = border.within("waiting", [&] { return wire::read(from.waiting(), border); });
  }
  to.generation = border.generation("generation", from.generation());
  to.world_size = border.between("world_size", from.world_size(), 0U, wire::kMaxWorldSize);
  to.master_addr = border.name("master_addr", from.master_addr());
  to.master_port = border.port("master_port", from.master_port());
  to.restarts_used = from.restarts_used();
  if (border.count("members", from.members_size(), wire::kMaxMembers)) {
    for (const v1::MemberDescription& member : from.members()) {
      to.members.push_back(border.within("members", [&] { return read(member, border); }));
    }
  }
  if (from.has_last_failure()) {
    to.last_failure =
        border.within("last_failure", [&] { return wire::read(from.last_failure(), border); });
  }
  if (from.has_outcome()) {
    to.outcome = border.within("outcome", [&] { return wire::read(from.outcome(), border); });
  }
  to.age = border.duration("age_ns", from.age_ns());
  to.goodput = from.goodput();
  if (!(to.goodput >= 0 && to.goodput <= 1)) border.complain("goodput", "is not in [0, 1]");
  if (from.has_recoveries()) {
    to.recoveries = border.within("recoveries", [&] { return read(from.recoveries(), border); });
  }
  return to;
}

void write(const Order& from, v1::OperateRequest& to) {
  struct Write {
    v1::OperateRequest& to;
    void operator()(const StopJob&) const { to.mutable_stop(); }
    void operator()(const RestartJob&) const { to.mutable_restart(); }
    void operator()(const DrainNode& order) const { to.mutable_drain()->set_node(order.node); }
    void operator()(const ScaleJob& order) const {
      to.mutable_scale()->set_min_nodes(order.min_nodes);
      to.mutable_scale()->set_max_nodes(order.max_nodes);
    }
  };
  std::visit(Write{to}, from);
}

Order read(const v1::OperateRequest& from, wire::Border& border) {
  using Given = v1::OperateRequest::OrderCase;
  switch (from.order_case()) {
    case Given::kStop: return StopJob{};
    case Given::kRestart: return RestartJob{};
    case Given::kScale: return ScaleJob{from.scale().min_nodes(), from.scale().max_nodes()};
    case Given::kDrain: return DrainNode{border.required_name("node", from.drain().node())};
    case Given::ORDER_NOT_SET: break;
  }
  border.complain("order", "is missing: this server may be older than the command");
  return RestartJob{};
}

}  // namespace muster::rendezvous
