// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/record_wire.h"

#include <algorithm>
#include <limits>
#include <map>

#include "muster/v1/control.pb.h"
#include "proto/base/rng.h"
#include "proto/wire/job.h"
#include "proto/wire/messages.h"

namespace muster::rendezvous {
namespace {

static_assert(v1::StopWhy_MAX == static_cast<int>(StopWhy::kDrain) + 1);
static_assert(v1::Phase_MAX == static_cast<int>(Phase::kFinished) + 1);

constexpr std::size_t kMostCharges = 1U << 20U;
constexpr std::size_t kMostLeaves = 1024;
constexpr std::size_t kMostAliases = 1024;
constexpr std::size_t kMostOffenders = 1U << 16U;
constexpr std::size_t kMostDrained = 1U << 16U;
constexpr std::size_t kMostFailures = wire::kMaxSlots + 1;  // each of its workers, and the node
constexpr WallTime kEndOfTime = 7258118400000000;           // 2200: nanoseconds are in range

WallTime time(const char* field, std::int64_t us, wire::Border& border) {
  return border.between<WallTime>(field, us, 0, kEndOfTime);
}

void write(const OffenderRecord& from, v1::OffenderRecord& to) {
  to.set_node(from.node);
  for (const WallTime at : from.causes)
    to.add_causes_us(at);
  to.set_times(from.times);
  if (from.until) to.set_until_us(*from.until);
}

OffenderRecord read(const v1::OffenderRecord& from, wire::Border& border) {
  OffenderRecord to;
  to.node = border.required_name("node", from.node());
  if (border.count("causes_us", from.causes_us_size(), kMostCharges)) {
    for (const std::int64_t at : from.causes_us())
      to.causes.push_back(time("causes_us", at, border));
  }
  to.times = from.times();
  if (from.has_until_us()) to.until = time("until_us", from.until_us(), border);
  return to;
}

void write_parts(const JobRecord& from, v1::JobRecord& to) {
  if (from.stop) {
    to.mutable_stop()->set_why(wire::to_enum<v1::StopWhy>(from.stop->why));
    to.mutable_stop()->set_planned(from.stop->planned);
    to.mutable_stop()->set_reason(wire::cut(from.stop->reason));
    if (from.stop->began) to.mutable_stop()->set_began_us(*from.stop->began);
  }
  if (from.recovery) {
    to.mutable_recovery()->set_failed_us(from.recovery->failed);
    to.mutable_recovery()->set_detected_us(from.recovery->detected);
    to.mutable_recovery()->set_stopped_us(from.recovery->stopped);
  }
  if (from.recovered) {
    v1::RecoveredRecord& recovered = *to.mutable_recovered();
    recovered.set_detect_ns(from.recovered->event.detect.count());
    recovered.set_stop_ns(from.recovered->event.stop.count());
    recovered.set_form_ns(from.recovered->event.form.count());
    recovered.set_spawn_ns(from.recovered->event.spawn.count());
    recovered.set_total_ns(from.recovered->event.total.count());
    recovered.set_failed_us(from.recovered->failed);
  }
  for (const OffenderRecord& offender : from.offenders)
    write(offender, *to.add_offenders());
  if (from.last_failure) wire::write(*from.last_failure, *to.mutable_last_failure());
  for (const auto& [at, signal] : from.leaves) {
    v1::LeaveRecord& leave = *to.add_leaves();
    leave.set_at_us(at);
    leave.set_signal(signal);
  }
  if (from.stop_requested_by) to.set_stop_requested_by(wire::cut(*from.stop_requested_by));
  for (const auto& [agent, by] : from.drained) {
    v1::DrainedRecord& written = *to.add_drained();
    written.set_incarnation(agent.second);
    written.set_node(agent.first);
    written.set_by(wire::cut(by));
  }
  if (from.outcome) wire::write(*from.outcome, *to.mutable_outcome());
}

void read_parts(const v1::JobRecord& from, wire::Border& border, JobRecord& to) {
  if (from.has_stop()) {
    to.stop = border.within("stop", [&] {
      StopRecord stop{border.enumerator("why", from.stop().why(), StopWhy::kDrain),
                      from.stop().planned(),
                      border.text("reason", from.stop().reason()),
                      {}};
      if (from.stop().has_began_us()) stop.began = time("began_us", from.stop().began_us(), border);
      return stop;
    });
  }
  if (from.has_recovery()) {
    to.recovery = RecoveryRecord{time("recovery", from.recovery().failed_us(), border),
                                 time("recovery", from.recovery().detected_us(), border),
                                 time("recovery", from.recovery().stopped_us(), border)};
  }
  if (from.has_recovered()) {
    const v1::RecoveredRecord& recovered = from.recovered();
    to.recovered = border.within("recovered", [&] {
      return RecoveredRecord{{border.duration("detect_ns", recovered.detect_ns()),
                              border.duration("stop_ns", recovered.stop_ns()),
                              border.duration("form_ns", recovered.form_ns()),
                              border.duration("spawn_ns", recovered.spawn_ns()),
                              border.duration("total_ns", recovered.total_ns()), std::nullopt},
                             time("failed_us", recovered.failed_us(), border)};
    });
  }
  if (border.count("offenders", from.offenders_size(), kMostOffenders)) {
    for (const v1::OffenderRecord& offender : from.offenders()) {
      to.offenders.push_back(border.within("offenders", [&] { return read(offender, border); }));
    }
  }
  if (from.has_last_failure()) {
    to.last_failure =
        border.within("last_failure", [&] { return wire::read(from.last_failure(), border); });
  }
  if (border.count("leaves", from.leaves_size(), kMostLeaves)) {
    for (const v1::LeaveRecord& leave : from.leaves()) {
      to.leaves.emplace_back(time("leaves", leave.at_us(), border),
                             border.between("leaves", leave.signal(), 0, 64));
    }
  }
  if (from.has_stop_requested_by()) {
    to.stop_requested_by = border.text("stop_requested_by", from.stop_requested_by());
  }
  if (border.count("drained", from.drained_size(), kMostDrained)) {
    for (const v1::DrainedRecord& drained : from.drained()) {
      const NodeName node = border.required_name("drained", drained.node());
      to.drained[{node, drained.incarnation()}] = border.text("drained", drained.by());
    }
  }
  if (from.has_outcome()) {
    to.outcome = border.within("outcome", [&] { return wire::read(from.outcome(), border); });
  }
}

void write(const ProgressRecord& from, v1::ProgressRecord& to) {
  to.set_reports_steps(from.reports_steps);
  to.set_best_step(from.best_step);
  to.set_best_checkpoint(from.best_checkpoint);
  to.set_failures_in_row(from.failures_in_row);
  to.set_losses_in_row(from.losses_in_row);
  to.set_idle_generations(from.idle_generations);
  to.set_rose(from.rose);
  if (from.kept) to.set_kept_us(*from.kept);
}

ProgressRecord read(const v1::ProgressRecord& from, wire::Border& border) {
  ProgressRecord to;
  to.reports_steps = from.reports_steps();
  to.best_step = from.best_step();
  to.best_checkpoint = from.best_checkpoint();
  to.failures_in_row = from.failures_in_row();
  to.losses_in_row = from.losses_in_row();
  to.idle_generations = from.idle_generations();
  to.rose = from.rose();
  if (from.has_kept_us()) to.kept = time("kept_us", from.kept_us(), border);
  return to;
}

std::vector<std::string> read_attempts(const char* field,
                                       const google::protobuf::RepeatedPtrField<std::string>& from,
                                       wire::Border& border) {
  std::vector<std::string> to;
  if (!border.count(field, from.size(), static_cast<int>(kAttemptsKept))) return to;
  for (const std::string& attempt : from)
    to.push_back(border.name(field, attempt));
  return to;
}

AttemptsRecord read(const v1::Attempts& from, wire::Border& border) {
  AttemptsRecord to;
  if (from.has_node_rank()) to.node_rank = from.node_rank();
  to.scheduler_job = border.name("scheduler_job", from.scheduler_job());
  if (from.has_scheduler_restart()) to.scheduler_restart = from.scheduler_restart();
  to.attempts = read_attempts("attempts", from.attempts(), border);
  return to;
}

MemberRecord read(const v1::MemberRecord& from, wire::Border& border) {
  MemberRecord to;
  if (border.present("facts", from.has_facts())) {
    to.facts = border.within("facts", [&] { return wire::read(from.facts(), border); });
  }
  to.observed_addr = border.name("observed_addr", from.observed_addr());
  to.incarnation = from.incarnation();
  to.role = border.enumerator("role", from.role(), Role::kSpare);
  to.leaving = from.leaving();
  to.work = border.generation("work", from.work());
  to.works = from.works();
  to.past = read_attempts("past_attempts", from.past_attempts(), border);
  to.returned = from.returned();
  return to;
}

CauseRecord read(const v1::CauseRecord& from, wire::Border& border) {
  CauseRecord to;
  if (border.present("failure", from.has_failure())) {
    to.failure = border.within("failure", [&] { return wire::read(from.failure(), border); });
  }
  to.reported = time("reported_us", from.reported_us(), border);
  to.happened = time("happened_us", from.happened_us(), border);
  to.order = from.order();
  to.agent_signaled = from.agent_signaled();
  to.stops_agent = from.stops_agent();
  if (from.has_hang()) to.hang = wire::read(from.hang());
  if (from.has_spoke_us()) to.spoke = time("spoke_us", from.spoke_us(), border);
  return to;
}

bool ranks_are_whole(const LifeRecord& life) {
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < life.ranks.size(); ++i) {
    const MemberRanks& ranks = life.ranks[i];
    if (ranks.group_rank != i || ranks.first_rank != next || ranks.count == 0) return false;
    if (ranks.count > wire::kMaxWorldSize - next) return false;
    next += ranks.count;
  }
  return next > 0;
}

// All of these ranks are the node's; nullptr: it has none.
bool owns(const MemberRanks* own, const std::vector<std::uint32_t>& ranks) {
  if (own == nullptr) return ranks.empty();
  return std::all_of(ranks.begin(), ranks.end(), [&](std::uint32_t rank) {
    return rank >= own->first_rank && rank - own->first_rank < own->count;
  });
}

}  // namespace

void write(const JobRecord& from, const ProgressRecord& progress, v1::JobRecord& to) {
  wire::write(from.spec, *to.mutable_spec());
  to.set_asked_min_nodes(from.asked.min);
  to.set_asked_max_nodes(from.asked.max);
  to.set_run(from.run);
  for (const RunId& alias : from.aliases)
    to.add_aliases(alias);
  to.set_epoch(from.epoch);
  to.set_phase(wire::to_enum<v1::Phase>(from.phase));
  to.set_generation(from.generation);
  to.set_last_incarnation(from.last_incarnation);
  to.set_state_lost(from.state_lost);
  to.set_server_left(from.server_left);
  to.set_started_us(from.started);
  to.set_restarts_used(from.restarts_used);
  for (const WallTime at : from.charges)
    to.add_charges_us(at);
  for (const std::uint32_t index : from.faults_fired)
    to.add_faults_fired(index);
  to.set_reason(wire::to_enum<v1::FormReason>(from.reason));
  to.set_wait_for_max(from.wait_for_max);
  to.set_reforming(from.reforming);
  to.set_round_opened_us(from.round_opened);
  if (from.join_until) to.set_join_until_us(*from.join_until);
  if (from.backoff_until) to.set_backoff_until_us(*from.backoff_until);
  if (from.fenced) to.set_fenced_us(*from.fenced);
  if (from.grown) to.set_grown_us(*from.grown);
  to.set_life_ended(from.life_ended);
  to.set_committed_us(from.committed);
  if (from.running) to.set_running_us(*from.running);
  if (from.parted) to.set_parted_us(*from.parted);
  to.set_ever_execed(from.ever_execed);
  to.set_kept_ns(from.kept.count());
  to.set_last_leave_signal(from.last_leave_signal);
  if (from.finished) to.set_finished_us(*from.finished);
  write_parts(from, to);
  write(progress, *to.mutable_progress());
}

void read(const v1::JobRecord& from, wire::Border& border, JobRecord& to,
          ProgressRecord& progress) {
  if (border.present("spec", from.has_spec())) {
    to.spec = border.within("spec", [&] { return wire::read(from.spec(), border); });
  }
  to.asked = from.asked_max_nodes() == 0  // written before jobs could be scaled
                 ? NodeRange{to.spec.min_nodes, to.spec.max_nodes}
                 : NodeRange{from.asked_min_nodes(), from.asked_max_nodes()};
  if (to.asked.min == 0 || to.asked.min > to.asked.max) border.complain("asked", "is no size");
  to.run = border.required_name("run", from.run());
  if (border.count("aliases", from.aliases_size(), kMostAliases)) {
    for (const std::string& alias : from.aliases())
      to.aliases.push_back(border.required_name("aliases", alias));
  }
  to.epoch = border.between<std::uint64_t>("epoch", from.epoch(), 1, 1ULL << 62U);
  to.phase = border.enumerator("phase", from.phase(), Phase::kFinished);
  to.generation = border.generation("generation", from.generation());
  to.last_incarnation =
      border.between<std::uint64_t>("last_incarnation", from.last_incarnation(), 0, 1ULL << 62U);
  to.state_lost = from.state_lost();
  to.server_left = from.server_left();
  to.started = time("started_us", from.started_us(), border);
  to.restarts_used = from.restarts_used();
  if (border.count("charges_us", from.charges_us_size(), kMostCharges)) {
    for (const std::int64_t at : from.charges_us())
      to.charges.push_back(time("charges_us", at, border));
  }
  if (border.count("faults_fired", from.faults_fired_size(), wire::kMaxFaults)) {
    to.faults_fired.insert(from.faults_fired().begin(), from.faults_fired().end());
  }
  to.reason = border.enumerator("reason", from.reason(), FormReason::kStateLost);
  to.wait_for_max = from.wait_for_max();
  to.reforming = from.reforming();
  to.round_opened = time("round_opened_us", from.round_opened_us(), border);
  if (from.has_join_until_us()) {
    to.join_until = time("join_until_us", from.join_until_us(), border);
  }
  if (from.has_backoff_until_us()) {
    to.backoff_until = time("backoff_until_us", from.backoff_until_us(), border);
  }
  if (from.has_fenced_us()) to.fenced = time("fenced_us", from.fenced_us(), border);
  if (from.has_grown_us()) to.grown = time("grown_us", from.grown_us(), border);
  to.life_ended = from.life_ended();
  to.committed = time("committed_us", from.committed_us(), border);
  if (from.has_running_us()) to.running = time("running_us", from.running_us(), border);
  if (from.has_parted_us()) to.parted = time("parted_us", from.parted_us(), border);
  to.ever_execed = from.ever_execed();
  to.kept = border.duration("kept_ns", from.kept_ns());
  to.last_leave_signal = border.between("last_leave_signal", from.last_leave_signal(), 0, 64);
  if (from.has_finished_us()) to.finished = time("finished_us", from.finished_us(), border);
  read_parts(from, border, to);
  progress = border.within("progress", [&] { return read(from.progress(), border); });
}

void write(const LifeRecord& from, v1::LifeRecord& to) {
  to.set_generation(from.generation);
  to.set_attempt(from.attempt);
  for (const MemberRanks& ranks : from.ranks)
    wire::write(ranks, *to.add_ranks());
  to.set_master_addr(from.master_addr);
  to.set_master_port(from.master_port);
}

LifeRecord read(const v1::LifeRecord& from, wire::Border& border) {
  LifeRecord to;
  to.generation = border.generation("generation", from.generation());
  to.attempt = from.attempt();
  if (border.count("ranks", from.ranks_size(), wire::kMaxMembers)) {
    for (const v1::MemberRanks& ranks : from.ranks())
      to.ranks.push_back(border.within("ranks", [&] { return wire::read(ranks, border); }));
  }
  to.master_addr = border.name("master_addr", from.master_addr());
  to.master_port = border.port("master_port", from.master_port());
  return to;
}

void write(const NodeRecord& from, v1::NodeRecord& to) {
  to.set_node(from.node);
  if (from.member) {
    v1::MemberRecord& member = *to.mutable_member();
    wire::write(from.member->facts, *member.mutable_facts());
    member.set_observed_addr(from.member->observed_addr);
    member.set_incarnation(from.member->incarnation);
    member.set_role(wire::to_enum<v1::Role>(from.member->role));
    member.set_leaving(from.member->leaving);
    member.set_work(from.member->work);
    member.set_works(from.member->works);
    for (const std::string& attempt : from.member->past)
      member.add_past_attempts(attempt);
    member.set_returned(from.member->returned);
  }
  if (from.gone) {
    v1::Attempts& gone = *to.mutable_gone();
    if (from.gone->node_rank) gone.set_node_rank(*from.gone->node_rank);
    gone.set_scheduler_job(from.gone->scheduler_job);
    if (from.gone->scheduler_restart) gone.set_scheduler_restart(*from.gone->scheduler_restart);
    for (const std::string& attempt : from.gone->attempts)
      gone.add_attempts(attempt);
  }
  to.set_started(from.started);
  for (const std::uint32_t rank : from.exited)
    to.add_exited(rank);
  for (const std::uint32_t rank : from.done)
    to.add_done(rank);
  for (const CauseRecord& cause : from.causes) {
    v1::CauseRecord& written = *to.add_causes();
    wire::write(cause.failure, *written.mutable_failure());
    written.set_reported_us(cause.reported);
    written.set_happened_us(cause.happened);
    written.set_order(cause.order);
    written.set_agent_signaled(cause.agent_signaled);
    written.set_stops_agent(cause.stops_agent);
    if (cause.hang) wire::write(*cause.hang, *written.mutable_hang());
    if (cause.spoke) written.set_spoke_us(*cause.spoke);
  }
  for (const Failure& failure : from.torn_down)
    wire::write(failure, *to.add_torn_down());
}

NodeRecord read(const v1::NodeRecord& from, wire::Border& border) {
  NodeRecord to;
  to.node = border.required_name("node", from.node());
  if (from.has_member()) {
    to.member = border.within("member", [&] { return read(from.member(), border); });
  }
  if (from.has_gone()) {
    to.gone = border.within("gone", [&] { return read(from.gone(), border); });
  }
  to.started = from.started();
  if (border.count("exited", from.exited_size(), wire::kMaxSlots)) {
    to.exited.assign(from.exited().begin(), from.exited().end());
  }
  if (border.count("done", from.done_size(), wire::kMaxSlots)) {
    to.done.assign(from.done().begin(), from.done().end());
  }
  if (border.count("causes", from.causes_size(), kMostFailures)) {
    for (const v1::CauseRecord& cause : from.causes())
      to.causes.push_back(border.within("causes", [&] { return read(cause, border); }));
  }
  if (border.count("torn_down", from.torn_down_size(), kMostFailures)) {
    for (const v1::Failure& failure : from.torn_down()) {
      to.torn_down.push_back(
          border.within("torn_down", [&] { return wire::read(failure, border); }));
    }
  }
  return to;
}

// ---------------------------------------------------------------- rows

std::int64_t checksum(const std::string& bytes) {
  return static_cast<std::int64_t>(hash_text(bytes));
}

namespace {

template <class Message>
absl::StatusOr<Message> message_in(const std::string& bytes, std::int64_t sum) {
  Message message;
  if (checksum(bytes) != sum) return absl::DataLossError("a checksum is wrong");
  if (!message.ParseFromString(bytes)) return absl::DataLossError("a record cannot be read");
  return message;
}

template <class Record, class Message>
absl::StatusOr<Record> record_in(const std::string& bytes, std::int64_t sum) {
  const absl::StatusOr<Message> message = message_in<Message>(bytes, sum);
  if (!message.ok()) return message.status();
  wire::Border border;
  Record record = rendezvous::read(*message, border);
  if (!border.ok()) return border.status();
  return record;
}

}  // namespace

absl::Status read_row(const std::string& bytes, std::int64_t sum, JobRecord& job,
                      ProgressRecord& progress) {
  const absl::StatusOr<v1::JobRecord> message = message_in<v1::JobRecord>(bytes, sum);
  if (!message.ok()) return message.status();
  wire::Border border;
  read(*message, border, job, progress);
  return border.status();
}

absl::StatusOr<LifeRecord> read_life_row(const std::string& bytes, std::int64_t sum) {
  return record_in<LifeRecord, v1::LifeRecord>(bytes, sum);
}

absl::StatusOr<NodeRecord> read_node_row(const std::string& bytes, std::int64_t sum) {
  return record_in<NodeRecord, v1::NodeRecord>(bytes, sum);
}

void check_run(const RunRecord& run, wire::Border& border) {
  const JobRecord& job = run.job;
  const bool needs_life = job.phase == Phase::kStarting || job.phase == Phase::kRunning;
  if (needs_life && (!run.life || job.life_ended)) {
    border.complain("phase", "runs a generation that is not there");
  }
  if (job.phase == Phase::kStopping && (!run.life || !job.stop)) {
    border.complain("phase", "stops what is not there");
  }
  if (job.phase == Phase::kRecovering && !job.stop) {
    border.complain("phase", "recovers without a stop");
  }
  if (job.reforming && !run.life) border.complain("reforming", "what is not there");
  if (job.phase == Phase::kPreparing) border.complain("phase", "is never recorded");
  if (job.phase == Phase::kFinished && (!job.outcome || !job.finished)) {
    border.complain("phase", "is over without an outcome");
  }
  if (job.phase != Phase::kFinished && job.outcome) {
    border.complain("phase", "has an outcome and goes on");
  }
  if (job.phase == Phase::kBackoff && !job.backoff_until) {
    border.complain("phase", "waits without an end");
  }
  if (job.spec.job.empty()) border.complain("spec", "has no job id");
  if (job.spec.min_nodes == 0 || job.spec.min_nodes > job.spec.max_nodes) {
    border.complain("spec", "needs 1 <= MIN <= MAX");
  }
  const bool must_stop = !needs_life && job.phase != Phase::kFinished && !job.server_left;
  if (run.life && !ranks_are_whole(*run.life)) border.complain("ranks", "are not 0 to n-1");
  std::map<NodeName, const MemberRanks*> ranks;
  if (run.life) {
    for (const MemberRanks& each : run.life->ranks)
      ranks[each.node] = &each;
  }
  for (const NodeRecord& node : run.nodes) {
    const auto own = ranks.find(node.node);
    const MemberRanks* part = own == ranks.end() ? nullptr : own->second;
    if (!owns(part, node.exited) || !owns(part, node.done)) {
      border.complain("exited", "has a rank of another node");
    }
    if (!node.member) continue;
    if (node.member->facts.name != node.node) border.complain("node", "is named differently");
    if (node.member->works && must_stop && !job.stop) {
      border.complain("node", "is to be stopped by no order");
    }
  }
}

}  // namespace muster::rendezvous
