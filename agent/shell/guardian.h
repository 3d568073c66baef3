// SPDX-License-Identifier: Apache-2.0
//
// The guardian: the tiny process that users see and signal. It forks the agent first of all,
// adopts what the agent loses, passes signals on, and ends with the agent's exit code. When the
// agent dies unasked, it kills everything below; when it dies itself, the agent sees that
// (GuardianWatch) and does the same. Neither relies on the agent's loop, which may sit in a dead
// file system: the guardian ends an agent that does not act on signals (guard_patience.h), and a
// thread of the agent that touches no file does what the loop does not.
//
// Thread rule: run_guarded before any other thread exists; GuardianWatch on the io thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/shell/signals.h"
#include "proto/base/time.h"

namespace muster::agent {

// Exit code of a guardian whose agent was killed (contracts §6: internal).
inline constexpr int kAgentKilledExitCode = 70;

// What guardian and agent know of each other's loops; in memory that both have.
struct GuardPage {
  std::atomic<std::uint32_t> heard{0};    // signals to stop that the agent's loop has taken
  std::atomic<bool> loss_noticed{false};  // by the agent's loop: the guardian is gone
};

// Handed to the agent's main function.
struct Guarded {
  StartingState start;
  pid_t guardian = 0;
  GuardPage* page = nullptr;
};

struct Guarding {
  // Runs once in the guardian while the agent starts: house work that may not cost the job time. It
  // must be short, signals wait for it.
  std::function<void()> meanwhile = {};
  std::vector<int> more = {};        // signals that are not to end it
  std::vector<int> more_stops = {};  // … of these, those that stop the job
  // From the first signal to stop to the end of an agent that is then killed; nullopt: none.
  std::optional<Duration> limit = {};
  // The agent was killed, and so was all that it had: the exit code, and why, in a line that has
  // been printed. In a process of its own, which has a second: what killed the agent may be a file
  // system that hangs.
  std::function<void(int exit_code, const std::string&)> killed = {};
};

// Splits the process: the child runs `agent_main` and exits with its value; the parent guards it
// and returns the exit code for main (128+n where it ended an agent that was told to stop by n).
// Both have the stop signals, those of job control, the forwarded ones and `guarding.more` blocked
// (nothing is lost before the agent's SignalWatch exists) and are child subreapers. REQUIRES: one
// thread.
int run_guarded(const std::function<int(const Guarded&)>& agent_main,
                const Guarding& guarding = {});

// Whether anybody could continue this process if it stopped: a parent of its process group within
// the session but outside of the group, a shell that is. Without one (an orphaned process group, to
// POSIX) the kernel throws a terminal's SIGTSTP away.
bool has_job_control();

// SIGTSTP as the shell that waits for the guardian sees it: the guardian stops, or goes on. From
// the agent; nothing where the guardian is not its parent any more.
void suspend_guardian(pid_t guardian);
void resume_guardian(pid_t guardian);

// Calls `lost` once, on the io thread, when the guardian is dead or cannot be watched; with the
// reason in words. `page`, where there is one, has it too.
class GuardianWatch {
 public:
  GuardianWatch(boost::asio::io_context& io, pid_t guardian, GuardPage* page,
                std::function<void(std::string)> lost);
  ~GuardianWatch();
  GuardianWatch(const GuardianWatch&) = delete;
  GuardianWatch& operator=(const GuardianWatch&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
