// SPDX-License-Identifier: Apache-2.0
//
// How one worker is stopped: the wanted signal, a grace, SIGKILL to the group, then to whatever
// is still below it. The ladder holds what is wanted and when; due() says which signals leave
// now. It forgets nothing and never climbs down: a later call may only bring the end nearer.
//
//   begin ──signal_at──> signal (leader or group) ──kill_at──> SIGKILL group, then descendants
//                          │
//                          └ leader ends, others live on: signal to all that descends from it
//                            and was not told yet, its group and what left the group; rest of
//                            the grace
//
// SIGKILL is ordered once; the shell repeats it until nothing is left or reports the worker
// unkillable.
//
// Not thread-safe; part of the agent machine.
#pragma once

#include <optional>
#include <vector>

#include "agent/core/agent.h"
#include "proto/base/time.h"

namespace muster::agent {

// signal(7), the same numbers on x86-64 and arm64.
inline constexpr int kSigKill = 9;
inline constexpr int kSigTerm = 15;

class StopLadder {
 public:
  struct Order {
    int signal = 0;
    SignalScope scope = SignalScope::kLeader;
    bool operator==(const Order&) const = default;
  };

  // Wants `signal` at `signal_at` and SIGKILL at `kill_at`. Begun already: only hastens.
  // REQUIRES: signal_at <= kill_at.
  void begin(int signal, SignalScope scope, Instant signal_at, Instant kill_at);
  // The first signal is due by `signal_at`, SIGKILL by `kill_at`, if that is sooner than planned.
  // REQUIRES: begun().
  void hasten(Instant signal_at, Instant kill_at);
  // SIGKILL now, whether begun or not.
  void kill(Instant now);
  // The worker process ended; what it started may live on.
  void leader_ended() { leader_ended_ = true; }
  // Nothing of the worker is left, or it was given up on: no order follows.
  void close() { closed_ = true; }

  bool begun() const { return begun_; }
  // A signal of ours has been sent: what ends now was torn down.
  bool signaled() const { return signaled_ || killed_; }
  // SIGKILL has been sent: only then is a death by SIGKILL our doing.
  bool killed() const { return killed_; }

  // Signals to send now, in order; each is returned once.
  std::vector<Order> due(Instant now);
  std::optional<Instant> next_deadline() const;

 private:
  bool begun_ = false;
  bool closed_ = false;
  bool leader_ended_ = false;
  bool signaled_ = false;        // the wanted signal left
  bool group_signaled_ = false;  // … for the leader's group too
  bool rest_signaled_ = false;   // … for all that descends from it
  bool killed_ = false;
  int signal_ = kSigTerm;
  SignalScope scope_ = SignalScope::kLeader;
  Instant signal_at_;
  Instant kill_at_;
};

}  // namespace muster::agent
