// SPDX-License-Identifier: Apache-2.0
//
// SIGTSTP and SIGCONT. A worker leads a session of its own, where job control never reaches it, so
// it is the agent that stops it, and the agent itself goes on: it keeps the node's lease, serves
// the others where it hosts the server, and carries out what the server orders meanwhile. The
// guardian, which the shell waits for, is stopped last: the prompt comes back when all is still.
#include <algorithm>

#include "agent/core/machine.h"

namespace muster::agent {
namespace {

// signal(7), the same numbers on x86-64 and arm64.
constexpr int kSigCont = 18;
constexpr int kSigStop = 19;
constexpr int kSigTstp = 20;

}  // namespace

// True: there is nothing more to do about it.
bool Agent::State::suspends_or_resumes(int signal) {
  if (signal == kSigTstp) {
    if (!suspended_ && !end_) suspend();
    return true;
  }
  if (signal != kSigCont) return false;
  if (suspended_) resume();
  const auto& forwarded = config_.forward_signals;
  return std::find(forwarded.begin(), forwarded.end(), signal) == forwarded.end();
}

void Agent::State::suspend() {
  suspended_ = true;
  for (Worker& worker : workers_)
    suspend_worker(worker);
  if (link_.usable()) send_heartbeat();
  act(SuspendGuardian{});
}

void Agent::State::resume() {
  suspended_ = false;
  hang_looked_at_ = now_;
  for (Worker& worker : workers_)
    wake_worker(worker);
  if (link_.usable()) send_heartbeat();
  act(ResumeGuardian{});
}

// Who has been told to end must be able to.
void Agent::State::suspend_worker(Worker& worker) {
  if (!worker.spawned || worker.gone || worker.given_up || worker.ladder.begun()) return;
  worker.suspended = true;
  act(SignalWorker{.local_rank = worker.local_rank,
                   .signal = kSigStop,
                   .scope = SignalScope::kDescendants,
                   .stops = false});
}

void Agent::State::wake_worker(Worker& worker) {
  if (!worker.suspended) return;
  worker.suspended = false;
  if (worker.gone || worker.given_up) return;
  act(SignalWorker{.local_rank = worker.local_rank,
                   .signal = kSigCont,
                   .scope = SignalScope::kDescendants,
                   .stops = false});
}

}  // namespace muster::agent
