// SPDX-License-Identifier: Apache-2.0
//
// GPU memory between two generations. The shell looks (agent/core/device_memory.h says what it
// makes of it) from when the last worker is gone, beside the confirming and forming that go on
// meanwhile; only the start of the next workers waits, and never for longer than a limit. Without
// a GPU (device_patience is 0) none of this happens.
#include <algorithm>

#include "agent/core/lines.h"
#include "agent/core/machine.h"

namespace muster::agent {
namespace {

// For a driver that does not even answer: the shell's own limit comes first.
constexpr Duration kAnswerLate = 500ms;
// A start that was held up by less is not worth a line.
constexpr Duration kWaitSaid = 500ms;

}  // namespace

void Agent::State::await_devices() {
  if (config_.device_patience <= 0s || devices_asked_ || workers_.empty() || any_alive()) return;
  devices_asked_ = true;
  AwaitDevices order;
  order.number = ++device_waits_;
  // The server takes a node whose workers do not start for lost after the join time-out.
  order.patience = std::min(config_.device_patience, policy_.join_timeout / 2);
  for (const Worker& worker : workers_) {
    if (worker.pid > 0) order.pids.push_back(worker.pid);
  }
  if (order.pids.empty()) return;
  device_wait_ = DeviceWait{order.number, now_ + order.patience + kAnswerLate};
  act(std::move(order));
}

void Agent::State::on(const DevicesFreed& freed) {
  if (device_wait_ && device_wait_->number == freed.number) end_device_wait(freed.holder);
}

void Agent::State::check_device_wait() {
  if (device_wait_ && now_ >= device_wait_->until) end_device_wait("the driver does not answer");
}

void Agent::State::end_device_wait(const std::string& holder) {
  device_wait_.reset();
  const bool holds = prepared_ && prepared_->committed;
  const Duration held = holds ? now_ - prepared_->committed_at : Duration{0};
  if (!holder.empty()) {
    say(Severity::kWarning, "not waiting any longer for free GPU memory: " + holder);
  } else if (held >= kWaitSaid) {
    say(Severity::kWarning,
        "waited " + seconds(held) + " s until the memory of the last workers was free on the GPUs");
  }
  // Meanwhile the server may have given us up. Where the stream broke it commits again if it has
  // not; else, as with a Commit that came late, its word on a heartbeat sent from now on is asked
  // for (is_counted_on).
  if (!holds || !link_.usable()) return;
  prepared_->committed_at = now_;
  start_committed();
  if (prepared_) send_heartbeat();
}

}  // namespace muster::agent
