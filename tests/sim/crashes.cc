// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/crashes.h"

#include <algorithm>

namespace muster::sim {
namespace {

bool crashed(const ExitStatus& status) {
  return status.kind == ExitStatus::Kind::kSignaled && (status.value == 11 || status.value == 9);
}

bool asked_to_stop(const ExitStatus& status) {
  const int number = status.kind == ExitStatus::Kind::kSignaled ? status.value : status.value - 128;
  return number == 1 || number == 2 || number == 3 || number == 15;
}

}  // namespace

void Crashes::formed(Generation generation, Instant now) {
  *this = Crashes();
  generation_ = generation;
  formed_ = now;
}

void Crashes::heard(const AgentMessage& message, Instant now) {
  const NodeName& node = message.envelope.node;
  if (const auto* leave = std::get_if<Leave>(&message.body)) {
    leavers_.insert(node);
    sign(now - std::clamp(leave->age, Duration{0}, now - formed_));
  }
  const auto* exited = std::get_if<WorkerExited>(&message.body);
  if (exited != nullptr && message.envelope.generation == generation_) {
    this->exited(node, *exited, now);
  }
}

void Crashes::exited(const NodeName& node, const WorkerExited& exited, Instant now) {
  if (!told_.insert(exited.rank).second) return;
  const Instant happened = now - std::clamp(exited.age, Duration{0}, now - formed_);
  if (exited.torn_down) {
    if (exited.parting) sign(happened);
  } else if (exited.agent_signaled) {
    sign(happened);
  } else if (asked_to_stop(exited.status)) {
    stopped_.emplace_back(node, happened);
  } else if (crashed(exited.status)) {
    crash_ = std::min(crash_.value_or(happened), happened);
  }
}

void Crashes::stop_ordered(Instant now) {
  sign(now);
}

void Crashes::sign(Instant at) {
  sign_ = std::min(sign_.value_or(at), at);
}

bool Crashes::one_was_first() const {
  if (!crash_) return false;
  // A journal keeps microseconds.
  const Instant surely = *crash_ + 1ms;
  if (sign_ && *sign_ <= surely) return false;
  return std::none_of(stopped_.begin(), stopped_.end(), [&](const auto& stopped) {
    return leavers_.contains(stopped.first) && stopped.second <= surely;
  });
}

}  // namespace muster::sim
