// SPDX-License-Identifier: Apache-2.0
//
// Workers that hang: no progress of one (--hang-timeout), or no output of any (--silence-timeout).
// Their stacks are captured, then the one that is most likely to blame is killed, which is a
// failure as any other from there on. In what hangs together everybody waits for one: a stopped
// process, else the one that has come least far, else nobody can tell.
#include <algorithm>

#include "agent/core/machine.h"
#include "proto/base/check.h"

namespace muster::agent {
namespace {

constexpr Duration kLeastLook = 20ms;
constexpr Duration kMostLook = 1s;
// What a look may be late. Beyond, we did not run, and workers perhaps neither.
constexpr Duration kLooksLate = 500ms;
// The shell's own limit is kStackPatience; this is for one that does not answer.
constexpr Duration kAnswerPatience = kStackPatience + 2s;

bool runs(const Worker& worker) {
  return worker.spawned && !worker.ended();
}

}  // namespace

// Not while one that was found is on its way out: it would be found again.
bool Agent::State::watches_hangs() const {
  const bool wanted = config_.hang_timeout || config_.silence_timeout;
  const auto is_found = [](const Worker& worker) { return runs(worker) && worker.hang; };
  return wanted && !stopping_ && !suspended_ && !capture_ &&
         std::any_of(workers_.begin(), workers_.end(), runs) &&
         std::none_of(workers_.begin(), workers_.end(), is_found);
}

Duration Agent::State::look_every() const {
  const Duration forever = Duration::max();
  const Duration least =
      std::min(config_.hang_timeout.value_or(forever), config_.silence_timeout.value_or(forever));
  return std::clamp(least / 4, kLeastLook, kMostLook);
}

std::optional<Instant> Agent::State::hang_deadline() const {
  if (capture_) return capture_->until;
  if (!watches_hangs()) return std::nullopt;
  return hang_looked_at_ + look_every();
}

void Agent::State::check_hangs() {
  if (capture_ && now_ >= capture_->until) return conclude_hang({});
  if (!watches_hangs()) return;
  if (now_ < hang_looked_at_ + look_every()) return;
  const Duration passed = now_ - hang_looked_at_;
  const Duration counted = passed > 2 * look_every() + kLooksLate ? look_every() : passed;
  hang_looked_at_ = now_;
  const bool heard = output_heard_ != output_counted_;
  output_counted_ = output_heard_;
  silent_ = heard ? Duration{0} : silent_ + counted;
  for (Worker& worker : workers_) {
    if (runs(worker)) count_standstill(worker, counted);
  }
  if (capture_) return;
  if (config_.silence_timeout && silent_ >= *config_.silence_timeout) {
    capture_stacks(true, "no output of this node's workers for " + format_measured(silent_));
  }
}

// By our own clock: a stopped worker has none, and a resumed one a wrong one.
void Agent::State::count_standstill(Worker& worker, Duration counted) {
  const auto found =
      std::find_if(progress_.begin(), progress_.end(),
                   [&](const RankProgress& progress) { return progress.rank == worker.rank; });
  if (found != progress_.end() && worker.step != found->step) {
    worker.step = found->step;
    worker.standstill = Duration{0};
    return;
  }
  worker.standstill += counted;
  if (!config_.hang_timeout || capture_) return;
  const Duration limit = worker.step ? *config_.hang_timeout : config_.hang_first;
  if (worker.standstill < limit) return;
  const std::string rank = "rank " + std::to_string(worker.rank);
  const std::string since = format_measured(worker.standstill);
  capture_stacks(false, worker.step ? rank + " makes no progress since " + since + ", at step " +
                                          std::to_string(*worker.step)
                                    : rank + " has not reported any progress in " + since);
}

void Agent::State::capture_stacks(bool by_silence, const std::string& why) {
  capture_ = Capture{++captures_, now_ + kAnswerPatience, by_silence, std::nullopt};
  CaptureStacks order;
  order.number = captures_;
  for (const Worker& worker : workers_) {
    if (runs(worker)) order.workers.push_back({worker.local_rank, worker.rank});
  }
  say(Severity::kWarning, why + ": capturing stacks of this node's workers");
  act(std::move(order));
}

void Agent::State::on(const StacksCaptured& captured) {
  if (capture_ && capture_->number == captured.number) conclude_hang(captured.workers);
}

void Agent::State::conclude_hang(const std::vector<CapturedStacks>& captured) {
  MUSTER_CHECK(capture_);
  const Capture capture = *std::exchange(capture_, std::nullopt);
  std::vector<Worker*> stopped;
  for (const CapturedStacks& one : captured) {
    Worker* worker = find(one.local_rank);
    if (worker == nullptr || !runs(*worker)) continue;
    worker->stacks = one.path;
    if (one.stopped) stopped.push_back(worker);
  }
  if (Worker* culprit = choose_culprit(stopped, capture.by_silence)) {
    // Not by its ladder: this is its failure, not our stopping it.
    act(SignalWorker{culprit->local_rank, kSigKill, SignalScope::kDescendants, kill_patience(),
                     false});
  }
  if (capture.stop_signal) stop_workers(*capture.stop_signal, policy_.stop_grace);
}

// Sets its `hang` and its words. nullptr: nobody is left to blame, or others are stopped already.
Worker* Agent::State::choose_culprit(const std::vector<Worker*>& stopped, bool by_silence) {
  std::vector<Worker*> running;
  for (Worker& worker : workers_) {
    if (runs(worker) && worker.ladder.begun()) return nullptr;
    if (runs(worker)) running.push_back(&worker);
  }
  if (running.empty()) return nullptr;
  const std::vector<Worker*>& suspects = stopped.empty() ? running : stopped;
  const auto behind = [](const Worker* a, const Worker* b) { return a->step < b->step; };
  const bool steps_tell = stopped.empty() && !by_silence;
  Worker* culprit =
      steps_tell ? *std::min_element(suspects.begin(), suspects.end(), behind) : suspects.front();
  const auto equals = std::count_if(suspects.begin(), suspects.end(), [&](const Worker* worker) {
    return !steps_tell || worker->step == culprit->step;
  });
  culprit->hang = Hang{equals > 1, !stopped.empty(), culprit->step};
  culprit->hang_words = by_silence ? "no output for " + format_measured(silent_)
                        : culprit->step
                            ? "no progress for " + format_measured(culprit->standstill) +
                                  ", at step " + std::to_string(*culprit->step)
                            : "no progress reported in " + format_measured(culprit->standstill);
  if (!stopped.empty()) culprit->hang_words += ", its process is stopped (state T)";
  if (equals > 1) culprit->hang_words += "; others stand where it does";
  return culprit;
}

}  // namespace muster::agent
