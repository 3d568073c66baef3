// SPDX-License-Identifier: Apache-2.0
//
// What the server orders: prepare a generation, commit to it, stop it; and what it tells.
#include <algorithm>
#include <utility>

#include "agent/core/end_order.h"
#include "agent/core/environment.h"
#include "agent/core/lines.h"
#include "agent/core/machine.h"
#include "proto/base/check.h"

namespace muster::agent {
namespace {

// A server asks again after every broken stream; no sane one does so this often.
constexpr std::size_t kMostConfirmations = 1024;

// "; this node's 16 processors are 8 for each".
std::string omp_advice(unsigned processors, std::uint32_t workers) {
  const unsigned share = workers == 0 ? 0 : processors / workers;
  if (share < 2) return "";
  return "; this node's " + std::to_string(processors) + " processors are " +
         std::to_string(share) + " for each";
}

bool is_well_formed(const Assignment& assignment, std::uint32_t slots) {
  if (assignment.generation < 0) return false;
  if (assignment.group_rank >= assignment.members.size()) return false;
  const MemberRanks& own = assignment.members[assignment.group_rank];
  return own.count == slots && own.first_rank < assignment.world_size &&
         own.count <= assignment.world_size - own.first_rank;
}

}  // namespace

void Agent::State::said(const Envelope& /*envelope*/, const Waiting& waiting) {
  waiting_ = waiting;
  waiting_told_at_ = now_;
}

void Agent::State::said(const Envelope& /*envelope*/, const Prepare& prepare) {
  const Generation generation = prepare.assignment.generation;
  const bool is_old =
      generation <= assignment_.generation ||
      (prepared_ &&
       (generation < prepared_->assignment.generation ||
        (generation == prepared_->assignment.generation && prepare.attempt < prepared_->attempt)));
  if (is_old) {
    say(Severity::kInfo, "dropped a stale Prepare of generation " + std::to_string(generation));
    return;
  }
  release_port();
  prepared_ = Prepared{};
  prepared_->attempt = prepare.attempt;
  prepared_->assignment = prepare.assignment;
  if (!is_well_formed(prepare.assignment, config_.node.slots)) {
    return answer_prepare(false, 0, "the assignment does not give this node its workers");
  }
  if (end_) return answer_prepare(false, 0, "this node is leaving");
  if (any_alive()) {
    // The server takes the older generation for stopped; make that true before the next try.
    stopping_ = true;
    stop_workers(wanted_signal(), policy_.stop_grace);
    return answer_prepare(
        false, 0,
        "workers of generation " + std::to_string(assignment_.generation) + " still run here");
  }
  await_devices();
  if (prepare.assignment.group_rank != 0) return answer_prepare(true, 0, "");
  port_wanted_ = true;
  ++ports_asked_;
  act(HoldMasterPort{prepare.attempt, config_.master_port_low, config_.master_port_high});
}

// Answers come in the order asked; only the last one is still wanted.
void Agent::State::on(const MasterPortHeld& held) {
  if (ports_asked_ == 0 || --ports_asked_ > 0) return;
  if (!port_wanted_ || !prepared_ || prepared_->attempt != held.attempt) return;
  answer_prepare(true, held.port, "");
}

void Agent::State::on(const MasterPortFailed& failed) {
  if (ports_asked_ == 0 || --ports_asked_ > 0) return;
  const bool wanted = std::exchange(port_wanted_, false);
  if (!wanted || !prepared_ || prepared_->attempt != failed.attempt) return;
  answer_prepare(false, 0, failed.reason);
}

void Agent::State::answer_prepare(bool accepted, std::uint16_t port, std::string reason) {
  if (!accepted) say(Severity::kInfo, "cannot take part in the next generation: " + reason);
  prepared_->answered = accepted;
  prepared_->answered_at = now_;
  const Generation generation = prepared_->assignment.generation;
  send(generation, PrepareAnswer{prepared_->attempt, accepted, port, std::move(reason)});
  if (!accepted) prepared_.reset();
}

void Agent::State::release_port() {
  if (!port_wanted_) return;
  port_wanted_ = false;
  act(ReleaseMasterPort{});
}

void Agent::State::said(const Envelope& envelope, const Commit& commit) {
  const bool matches = prepared_ && prepared_->answered &&
                       prepared_->assignment.generation == envelope.generation &&
                       prepared_->attempt == commit.attempt;
  if (!matches || end_) {
    say(Severity::kInfo,
        "dropped a stale Commit of generation " + std::to_string(envelope.generation));
    return;
  }
  prepared_->committed = commit.master_port;
  prepared_->committed_at = now_;
  start_committed();
  if (prepared_) send_heartbeat();
}

// A Commit that lay in our socket while we slept may be of a generation that the server has given
// up, and us with it. It had read our answer, or our Join, when it committed, and loses nobody
// within reconnect_grace of that. Later than this its word on a heartbeat is asked for first.
bool Agent::State::is_counted_on() const {
  const Instant read_at = std::max(prepared_->answered_at, join_sent_at_);
  if (now_ - read_at <= policy_.reconnect_grace) return true;
  return answered_at_ >= prepared_->committed_at && now_ - answered_at_ <= 2 * policy_.heartbeat;
}

void Agent::State::start_committed() {
  if (!prepared_ || !prepared_->committed || end_ || device_wait_ || !is_counted_on()) return;
  MUSTER_CHECK(!any_alive());
  const std::uint16_t master_port = *prepared_->committed;
  assignment_ = std::move(prepared_->assignment);
  prepared_.reset();
  start_generation(master_port);
}

void Agent::State::start_generation(std::uint16_t master_port) {
  committed_at_ = now_;
  all_spawned_ = false;
  stopping_ = false;
  confirmations_owed_.clear();
  confirmed_ = false;
  cause_noted_ = false;
  progress_.clear();
  faults_unsent_.clear();
  waiting_.reset();
  left_.clear();
  hang_looked_at_ = now_;
  output_counted_ = output_heard_;
  silent_ = Duration{0};
  capture_.reset();
  restarts_used_ = std::max(restarts_used_, assignment_.restarts_used);

  StartWorkers start;
  start.run = run_;
  start.generation = assignment_.generation;
  start.workers = plan_workers(config_, run_, assignment_, master_port);
  start.peers_elsewhere = assignment_.members.size() > 1;
  for (const ArmedFault& fault : assignment_.faults) {
    if (!fault.rank) start.agent_faults.push_back(fault);
  }
  workers_.clear();
  devices_asked_ = false;
  for (const WorkerPlan& plan : start.workers) {
    Worker worker;
    worker.local_rank = plan.local_rank;
    worker.rank = plan.rank;
    if (!plan.argv.empty()) worker.argv0 = plan.argv.front();
    workers_.push_back(std::move(worker));
  }
  const auto count = static_cast<std::uint32_t>(workers_.size());
  if (!omp_said_ && limits_omp_threads(config_, count)) {
    omp_said_ = true;
    say(Severity::kWarning, "OMP_NUM_THREADS is not set: 1 for each of the " +
                                std::to_string(count) + " workers here; set it to choose" +
                                omp_advice(config_.processors, count));
  }
  if (!config_.master_port_hold) release_port();
  act(std::move(start));
}

void Agent::State::said(const Envelope& envelope, const StopOrder& order) {
  if (order.mode == StopMode::kDetach) {
    say(Severity::kInfo, "no worker here can stay through a generation change; stopping them");
  }
  if (prepared_ && prepared_->assignment.generation <= envelope.generation) {
    prepared_.reset();  // it will not be committed
    release_port();
  }
  if (envelope.generation != assignment_.generation && assignment_.generation != kNoGeneration) {
    // Nothing of it runs here: an older one was stopped before the current one started, and a
    // newer one was never committed.
    send(envelope.generation, StopConfirmed{});
    return;
  }
  // Without a generation of our own there may still be workers of a run that was forgotten.
  if (confirmations_owed_.size() < kMostConfirmations) {
    confirmations_owed_.push_back(envelope.generation);
  }
  stopping_ = true;
  // Whoever else hangs is told from those that wait for it before all of them are stopped.
  if (capture_ && !order.planned) {
    capture_->stop_signal = wanted_signal();
  } else if (order.planned) {
    stop_planned(wanted_signal(), policy_.stop_grace);
  } else {
    // Its peers' reports may be here before the end of the one who was first.
    stop_workers(wanted_signal(), policy_.stop_grace,
                 std::min(EndOrder::kPatienceWithFailing, policy_.stop_grace / 2));
  }
}

bool Agent::State::has_member(const NodeName& node) const {
  return std::any_of(assignment_.members.begin(), assignment_.members.end(),
                     [&](const MemberRanks& member) { return member.node == node; });
}

void Agent::State::confirm_stops() {
  if (confirmations_owed_.empty() || any_alive()) return;
  if (!prepared_) release_port();
  if (!link_.usable()) return;
  for (const Generation generation : confirmations_owed_)
    send(generation, StopConfirmed{});
  confirmations_owed_.clear();
  confirmed_ = true;
  link_.stop_confirmed = link_.left;
}

void Agent::State::said(const Envelope& /*envelope*/, const JobEventNotice& notice) {
  const JobEvent& event = notice.event;
  if (const auto* failed = std::get_if<event::GenerationFailed>(&event.body)) {
    act(NoteFirstCause{failed->first_cause});  // settled by the server: outranks our own view
  }
  if (const auto* restart = std::get_if<event::RestartScheduled>(&event.body)) {
    restarts_used_ = std::max(restarts_used_, restart->restarts_used);
  }
  if (const auto* missed = std::get_if<event::ChaosMissed>(&event.body)) {
    if (job_finished_emitted_) return;  // again, on a new stream
    act(Say{Severity::kError, "fault never fired: " + missed->fault});
  }
  const bool leaves = event.node && std::holds_alternative<event::NodeLeft>(event.body);
  if (leaves && has_member(*event.node)) left_.insert(*event.node);
  if (event.node && std::holds_alternative<event::NodeJoined>(event.body)) left_.erase(*event.node);
  if (std::holds_alternative<event::JobFinished>(event.body)) {
    if (job_finished_emitted_) return;
    job_finished_emitted_ = true;
  }
  const bool running = std::holds_alternative<event::GenerationRunning>(event.body);
  if (running) {
    if (event.generation && event.generation == running_told_) return;  // again, on a new stream
    running_told_ = event.generation;
  }
  emit(event);
  if (running && event.generation == assignment_.generation && any_alive() && !stopping_) {
    act(StartFaultClock{assignment_.generation, notice.age});
  }
  if (const auto line = console_line(event)) say(Severity::kWarning, *line);
}

}  // namespace muster::agent
