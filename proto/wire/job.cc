// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/job.h"

#include <utility>

namespace muster::wire {
namespace {

static_assert(v1::FaultAction_MAX == static_cast<int>(FaultAction::kDelay) + 1);
static_assert(v1::LinkDirection_MAX == static_cast<int>(LinkDirection::kOut) + 1);
static_assert(v1::RandomVictim_MAX == static_cast<int>(RandomVictim::kNode) + 1);
static_assert(v1::FailureKind_MAX == static_cast<int>(FailureKind::kNodeLost) + 1);
static_assert(v1::FormReason_MAX == static_cast<int>(FormReason::kStateLost) + 1);
static_assert(v1::Grow_MAX == static_cast<int>(Grow::kNever) + 1);
static_assert(v1::Fence_MAX == static_cast<int>(Fence::kStrict) + 1);
static_assert(v1::OutcomeKind_MAX == static_cast<int>(OutcomeKind::kServerLost) + 1);
static_assert(v1::ExitClass_MAX == static_cast<int>(ExitClass::kInternal) + 1);
static_assert(v1::ExitStatus::Kind_MAX == static_cast<int>(ExitStatus::Kind::kExecFailed) + 1);

constexpr int kMaxSignal = 64;
constexpr std::uint32_t kMaxExitCode = 255;
constexpr double kMaxFactor = 1000;

}  // namespace

// ---------------------------------------------------------------- faults

void write(const Fault& from, v1::Fault& to) {
  to.set_index(from.index);
  to.set_action(to_enum<v1::FaultAction>(from.action));
  to.set_generation(from.when.generation);
  if (from.when.step) to.set_step(*from.when.step);
  if (from.when.after) to.set_after_ns(from.when.after->count());
  if (from.on.rank) to.set_rank(*from.on.rank);
  if (from.on.local_rank) to.set_local_rank(*from.on.local_rank);
  if (from.on.node) to.set_node(*from.on.node);
  to.set_signal(from.signal);
  if (from.on.random) to.set_random(to_enum<v1::RandomVictim>(*from.on.random));
  if (from.lasts) to.set_lasts_ns(from.lasts->count());
  to.set_exit_code(from.exit_code);
  to.set_factor(from.factor);
  to.set_by_ns(from.by.count());
  to.set_direction(to_enum<v1::LinkDirection>(from.direction));
  to.set_text(from.text);  // uncut: plans are compared
}

Fault read(const v1::Fault& from, Border& border) {
  Fault to;
  to.index = from.index();
  to.action = border.enumerator("action", from.action(), FaultAction::kDelay);
  to.when.generation = border.generation("generation", from.generation());
  if (from.has_step()) to.when.step = from.step();
  if (from.has_after_ns()) to.when.after = border.duration("after_ns", from.after_ns());
  if (from.has_step() == from.has_after_ns()) border.complain("step", "needs step or after_ns");
  if (from.has_rank()) to.on.rank = border.between("rank", from.rank(), 0U, kMaxWorldSize - 1);
  if (from.has_local_rank()) {
    to.on.local_rank = border.between("local_rank", from.local_rank(), 0U, kMaxSlots - 1);
  }
  if (from.has_node()) to.on.node = border.required_name("node", from.node());
  const bool random = from.random() != v1::RANDOM_VICTIM_UNSPECIFIED;
  if (random) to.on.random = border.enumerator("random", from.random(), RandomVictim::kNode);
  if (int{from.has_rank()} + int{from.has_local_rank()} + int{from.has_node()} + int{random} != 1) {
    border.complain("rank", "needs exactly one of rank, local_rank, node, random");
  }
  to.signal = border.between("signal", from.signal(), 0, kMaxSignal);
  if (from.has_lasts_ns()) to.lasts = border.duration("lasts_ns", from.lasts_ns());
  to.exit_code = border.between("exit_code", from.exit_code(), 0U, kMaxExitCode);
  // Fields from 13 on: not there in what an older program wrote; then the default.
  if (from.factor() != 0) to.factor = from.factor();
  if (!(to.factor >= 1 && to.factor <= kMaxFactor)) border.complain("factor", "is not in range");
  to.by = border.duration("by_ns", from.by_ns());
  if (from.direction() != v1::LINK_DIRECTION_UNSPECIFIED) {
    to.direction = border.enumerator("direction", from.direction(), LinkDirection::kOut);
  }
  to.text = border.text("text", from.text());
  return to;
}

void write(const ArmedFault& from, v1::ArmedFault& to) {
  write(from.fault, *to.mutable_fault());
  if (from.rank) to.set_rank(*from.rank);
}

ArmedFault read(const v1::ArmedFault& from, Border& border) {
  ArmedFault to;
  if (border.present("fault", from.has_fault())) {
    to.fault = border.within("fault", [&] { return read(from.fault(), border); });
  }
  if (from.has_rank()) to.rank = border.between("rank", from.rank(), 0U, kMaxWorldSize - 1);
  return to;
}

void write(const FaultPlan& from, v1::FaultPlan& to) {
  to.set_seed(from.seed);
  for (const Fault& fault : from.faults)
    write(fault, *to.add_faults());
}

FaultPlan read(const v1::FaultPlan& from, Border& border) {
  FaultPlan to;
  to.seed = from.seed();
  if (!border.count("faults", from.faults_size(), kMaxFaults)) return to;
  for (const v1::Fault& fault : from.faults()) {
    to.faults.push_back(border.within("faults", [&] { return read(fault, border); }));
  }
  return to;
}

// ---------------------------------------------------------------- what was asked for

namespace {

void write(const Quarantine& from, v1::Quarantine& to) {
  to.set_causes(from.causes);
  to.set_window_ns(from.window.count());
  to.set_cooldown_ns(from.cooldown.count());
}

Quarantine read(const v1::Quarantine& from, Border& border) {
  return {from.causes(), border.duration("window_ns", from.window_ns()),
          border.duration("cooldown_ns", from.cooldown_ns())};
}

// What an older program did not know keeps its default.
void read_later_rules(const v1::JobPolicy& from, Border& border, JobPolicy& to) {
  if (from.grow() != v1::GROW_UNSPECIFIED) {
    to.grow = border.enumerator("grow", from.grow(), Grow::kNever);
  }
  if (from.has_grow_interval_ns()) {
    to.grow_interval = border.duration("grow_interval_ns", from.grow_interval_ns());
  }
  if (from.has_max_spares()) to.max_spares = from.max_spares();
  to.max_no_progress = from.max_no_progress();
  if (from.has_quarantine()) {
    to.quarantine = border.within("quarantine", [&] { return read(from.quarantine(), border); });
  }
  if (from.fence() != v1::FENCE_UNSPECIFIED) {
    to.fence = border.enumerator("fence", from.fence(), Fence::kStrict);
  }
}

}  // namespace

void write(const JobPolicy& from, v1::JobPolicy& to) {
  to.set_max_restarts(from.max_restarts);
  if (from.max_restarts_window) to.set_max_restarts_window_ns(from.max_restarts_window->count());
  to.set_max_node_losses(from.max_node_losses);
  to.set_restart_backoff_max_ns(from.restart_backoff_max.count());
  to.set_join_timeout_ns(from.join_timeout.count());
  to.set_last_call_ns(from.last_call.count());
  to.set_stop_grace_ns(from.stop_grace.count());
  to.set_heartbeat_ns(from.heartbeat.count());
  to.set_node_timeout_ns(from.node_timeout.count());
  to.set_reconnect_grace_ns(from.reconnect_grace.count());
  to.set_recovery_window_ns(from.recovery_window.count());
  to.set_server_grace_ns(from.server_grace.count());
  to.set_linger(from.linger);
  to.set_grow(to_enum<v1::Grow>(from.grow));
  to.set_grow_interval_ns(from.grow_interval.count());
  if (from.max_spares) to.set_max_spares(*from.max_spares);
  to.set_max_no_progress(from.max_no_progress);
  write(from.quarantine, *to.mutable_quarantine());
  to.set_fence(to_enum<v1::Fence>(from.fence));
}

JobPolicy read(const v1::JobPolicy& from, Border& border) {
  JobPolicy to;
  to.max_restarts = from.max_restarts();
  if (from.has_max_restarts_window_ns()) {
    to.max_restarts_window =
        border.duration("max_restarts_window_ns", from.max_restarts_window_ns());
  }
  to.max_node_losses = from.max_node_losses();
  to.restart_backoff_max = border.duration("restart_backoff_max_ns", from.restart_backoff_max_ns());
  to.join_timeout = border.duration("join_timeout_ns", from.join_timeout_ns());
  to.last_call = border.duration("last_call_ns", from.last_call_ns());
  to.stop_grace = border.duration("stop_grace_ns", from.stop_grace_ns());
  to.heartbeat = border.duration("heartbeat_ns", from.heartbeat_ns());
  to.node_timeout = border.duration("node_timeout_ns", from.node_timeout_ns());
  // Zero would make a server spin or lose every node at once.
  if (to.heartbeat <= 0ns) border.complain("heartbeat_ns", "must be above 0");
  if (to.node_timeout <= 0ns) border.complain("node_timeout_ns", "must be above 0");
  to.reconnect_grace = border.duration("reconnect_grace_ns", from.reconnect_grace_ns());
  to.recovery_window = border.duration("recovery_window_ns", from.recovery_window_ns());
  to.server_grace = border.duration("server_grace_ns", from.server_grace_ns());
  to.linger = from.linger();
  read_later_rules(from, border, to);
  return to;
}

void write(const JobSpec& from, v1::JobSpec& to) {
  to.set_job(from.job);
  to.set_min_nodes(from.min_nodes);
  to.set_max_nodes(from.max_nodes);
  to.set_program(cut(from.program));
  to.set_program_hash(from.program_hash);
  write(from.policy, *to.mutable_policy());
  write(from.faults, *to.mutable_faults());
}

JobSpec read(const v1::JobSpec& from, Border& border) {
  constexpr auto kMost = static_cast<std::uint32_t>(kMaxMembers);
  JobSpec to;
  to.job = border.required_name("job", from.job());
  to.min_nodes = border.between("min_nodes", from.min_nodes(), 1U, kMost);
  to.max_nodes = border.between("max_nodes", from.max_nodes(), to.min_nodes, kMost);
  to.program = border.text("program", from.program());
  to.program_hash = from.program_hash();
  if (border.present("policy", from.has_policy())) {
    to.policy = border.within("policy", [&] { return read(from.policy(), border); });
  }
  to.faults = border.within("faults", [&] { return read(from.faults(), border); });
  return to;
}

void write(const NodeFacts& from, v1::NodeFacts& to) {
  to.set_name(from.name);
  to.set_host(from.host);
  to.set_advertise_addr(from.advertise_addr);
  to.set_dialed_addr(from.dialed_addr);
  to.set_slots(from.slots);
  if (from.node_rank) to.set_node_rank(*from.node_rank);
  if (from.scheduler_index) to.set_scheduler_index(*from.scheduler_index);
  to.set_scheduler_attempt(from.scheduler_attempt);
  to.set_scheduler_job(from.scheduler_job);
  if (from.scheduler_restart) to.set_scheduler_restart(*from.scheduler_restart);
  to.set_boot_id(from.boot_id);
  to.set_agent_pid(from.agent_pid);
  to.set_user(from.user);
  to.set_hosts_server(from.hosts_server);
  to.set_gpus(from.gpus);
  to.set_gpu(cut(from.gpu, kMaxNameBytes));
}

NodeFacts read(const v1::NodeFacts& from, Border& border) {
  NodeFacts to;
  to.name = border.required_name("name", from.name());
  to.host = border.name("host", from.host());
  to.advertise_addr = border.name("advertise_addr", from.advertise_addr());
  to.dialed_addr = border.name("dialed_addr", from.dialed_addr());
  to.slots = border.between("slots", from.slots(), 1U, kMaxSlots);
  if (from.has_node_rank()) {
    to.node_rank = border.between("node_rank", from.node_rank(), 0U,
                                  static_cast<std::uint32_t>(kMaxMembers) - 1);
  }
  if (from.has_scheduler_index()) to.scheduler_index = from.scheduler_index();
  to.scheduler_attempt = border.name("scheduler_attempt", from.scheduler_attempt());
  to.scheduler_job = border.name("scheduler_job", from.scheduler_job());
  if (from.has_scheduler_restart()) to.scheduler_restart = from.scheduler_restart();
  to.boot_id = border.name("boot_id", from.boot_id());
  to.agent_pid = border.pid("agent_pid", from.agent_pid());
  to.user = border.name("user", from.user());
  to.hosts_server = from.hosts_server();
  to.gpus = from.gpus();
  to.gpu = border.name("gpu", from.gpu());
  return to;
}

// ---------------------------------------------------------------- what went wrong, how it ended

void write(const ExitStatus& from, v1::ExitStatus& to) {
  to.set_kind(to_enum<v1::ExitStatus::Kind>(from.kind));
  to.set_value(from.value);
  to.set_core_dumped(from.core_dumped);
  to.set_detail(cut(from.detail));
}

ExitStatus read(const v1::ExitStatus& from, Border& border) {
  ExitStatus to;
  to.kind = border.enumerator("kind", from.kind(), ExitStatus::Kind::kExecFailed);
  switch (to.kind) {
    case ExitStatus::Kind::kExited: to.value = border.between("value", from.value(), 0, 255); break;
    case ExitStatus::Kind::kSignaled:
      to.value = border.between("value", from.value(), 1, kMaxSignal);
      break;
    case ExitStatus::Kind::kExecFailed:
      to.value = border.between("value", from.value(), 0, 4095);
      break;
  }
  to.core_dumped = from.core_dumped();
  to.detail = border.text("detail", from.detail());
  return to;
}

void write(const Hang& from, v1::Hang& to) {
  to.set_ambiguous(from.ambiguous);
  to.set_stopped(from.stopped);
  if (from.step) to.set_step(*from.step);
}

Hang read(const v1::Hang& from) {
  Hang to{from.ambiguous(), from.stopped(), std::nullopt};
  if (from.has_step()) to.step = from.step();
  return to;
}

void write(const Failure& from, v1::Failure& to) {
  to.set_kind(to_enum<v1::FailureKind>(from.kind));
  to.set_node(from.node);
  if (from.rank) to.set_rank(*from.rank);
  if (from.local_rank) to.set_local_rank(*from.local_rank);
  if (from.pid) to.set_pid(*from.pid);
  if (from.exit_code) to.set_exit_code(*from.exit_code);
  if (from.signal) to.set_signal(*from.signal);
  to.set_detail(cut(from.detail));
  to.set_stderr_tail(cut_front(from.stderr_tail, kMaxStderrTailBytes));
  to.set_error_file(cut(from.error_file, kMaxErrorFileBytes));
  to.set_secondary(from.secondary);
  to.set_ambiguous(from.ambiguous);
  to.set_torn_down(from.torn_down);
  to.set_core_dumped(from.core_dumped);
  to.set_stacks(cut(from.stacks));
}

Failure read(const v1::Failure& from, Border& border) {
  Failure to;
  to.kind = border.enumerator("kind", from.kind(), FailureKind::kNodeLost);
  to.node = border.name("node", from.node());
  if (from.has_rank()) to.rank = border.between("rank", from.rank(), 0U, kMaxWorldSize - 1);
  if (from.has_local_rank()) {
    to.local_rank = border.between("local_rank", from.local_rank(), 0U, kMaxSlots - 1);
  }
  if (from.has_pid()) to.pid = border.pid("pid", from.pid());
  if (from.has_exit_code()) to.exit_code = border.between("exit_code", from.exit_code(), 0, 255);
  if (from.has_signal()) to.signal = border.between("signal", from.signal(), 0, kMaxSignal);
  to.detail = border.text("detail", from.detail());
  to.stderr_tail = border.text("stderr_tail", from.stderr_tail(), kMaxStderrTailBytes);
  to.error_file = border.text("error_file", from.error_file(), kMaxErrorFileBytes);
  to.secondary = from.secondary();
  to.ambiguous = from.ambiguous();
  to.torn_down = from.torn_down();
  to.core_dumped = from.core_dumped();
  to.stacks = border.text("stacks", from.stacks());
  return to;
}

void write(const Outcome& from, v1::Outcome& to) {
  to.set_kind(to_enum<v1::OutcomeKind>(from.kind));
  to.set_exit_code(from.exit_code);
  to.set_exit_class(to_enum<v1::ExitClass>(from.exit_class));
  to.set_text(cut(from.text));
  if (from.first_cause) write(*from.first_cause, *to.mutable_first_cause());
  for (const Failure& victim : from.victims) {
    if (static_cast<std::size_t>(to.victims_size()) == kMaxVictims) break;
    write(victim, *to.add_victims());
  }
  to.set_restarts_used(from.restarts_used);
  to.set_max_restarts(from.max_restarts);
  to.set_duration_ns(from.duration.count());
  to.set_goodput(from.goodput);
}

Outcome read(const v1::Outcome& from, Border& border) {
  Outcome to;
  to.kind = border.enumerator("kind", from.kind(), OutcomeKind::kServerLost);
  to.exit_code = border.between("exit_code", from.exit_code(), 0, 255);
  // Nothing but a success may look like one to a script.
  if ((to.kind == OutcomeKind::kSucceeded) != (to.exit_code == 0)) {
    border.complain("exit_code", "contradicts the outcome");
  }
  to.exit_class = border.enumerator("exit_class", from.exit_class(), ExitClass::kInternal);
  to.text = border.text("text", from.text());
  if (from.has_first_cause()) {
    to.first_cause = border.within("first_cause", [&] { return read(from.first_cause(), border); });
  }
  if (border.count("victims", from.victims_size(), kMaxVictims)) {
    for (const v1::Failure& victim : from.victims()) {
      to.victims.push_back(border.within("victims", [&] { return read(victim, border); }));
    }
  }
  to.restarts_used = from.restarts_used();
  to.max_restarts = from.max_restarts();
  to.duration = border.duration("duration_ns", from.duration_ns());
  to.goodput = border.share("goodput", from.goodput());
  return to;
}

}  // namespace muster::wire
