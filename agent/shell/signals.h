// SPDX-License-Identifier: Apache-2.0
//
// Signals of the agent: what the process was started with (handed on to workers unchanged), what
// it takes for itself, and their arrival as ordinary callbacks of the io loop.
//
// Managed signals are blocked and read from a signalfd: nothing runs in handler context, nothing
// is lost between start and the first turn of the loop, and si_code says who sent them.
//
// Thread rule: capture_starting_state and take_signals run before any other thread exists (later
// threads inherit the mask); SignalWatch lives on the io thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace muster::agent {

// What the process inherited, before it changed anything. Workers get exactly this.
struct StartingState {
  sigset_t mask{};
  std::uint64_t ignored = 0;  // bit n - 1: signal n was ignored
  mode_t umask = 022;
  std::array<rlimit, RLIM_NLIMITS> limits{};
  std::vector<int> kept;  // descriptors above 2 that workers get too, ascending

  bool was_ignored(int signal) const { return (ignored >> (signal - 1) & 1U) != 0; }
};

// REQUIRES: called first, with one thread.
StartingState capture_starting_state();

// INT, TERM, HUP and QUIT, less those of INT, HUP and QUIT that were ignored at start (nohup, a
// script's `&`): what ends a job.
std::vector<int> stop_signals(const StartingState& start);

// What `muster run` passes on without stopping, by default.
std::vector<int> default_forward_signals();

// TSTP, where it was not ignored at start, and CONT: a job is suspended and goes on.
std::vector<int> job_control_signals(const StartingState& start);

// Takes `signals` and SIGCHLD: blocks them for a SignalWatch or the guardian. Ignores SIGPIPE,
// SIGXFSZ, SIGTTIN and SIGTTOU (a background agent must never be stopped by its terminal), and
// gives SIGCHLD its default disposition back (ignored, the kernel would reap behind our back).
// Managed signals that are not listed get back the starting mask.
void take_signals(const StartingState& start, const std::vector<int>& signals);

struct SignalInfo {
  int signal = 0;
  int code = 0;      // si_code: SI_KERNEL for the terminal driver
  pid_t sender = 0;  // 0 where the kernel sent it
};

// Calls `arrived` on the io thread for every one of `signals`.
// REQUIRES: they are blocked in every thread (take_signals).
class SignalWatch {
 public:
  SignalWatch(boost::asio::io_context& io, const std::vector<int>& signals,
              std::function<void(const SignalInfo&)> arrived);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
