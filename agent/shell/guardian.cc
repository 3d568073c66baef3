// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <set>
#include <signal.h>
#include <string.h>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>

#include "agent/shell/descendants.h"
#include "agent/shell/unique_fd.h"
#include "proto/base/check.h"
#include "proto/base/job.h"

namespace muster::agent {
namespace {

constexpr Duration kKillLimit = 5s;

// One write, so that the line is not torn; a closed stderr is no reason to do anything else.
void print_line(const std::string& text) {
  const std::string line = "muster: " + text + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

// What the guardian passes on and waits for.
std::vector<int> guarded_signals(const StartingState& start, const std::vector<int>& more) {
  std::vector<int> signals = stop_signals(start);
  for (const std::vector<int>& others :
       {default_forward_signals(), job_control_signals(start), more}) {
    signals.insert(signals.end(), others.begin(), others.end());
  }
  return signals;
}

void signal_guardian(pid_t guardian, int signal) {
  if (::getppid() == guardian) ::kill(guardian, signal);
}

// Children we had before the agent (`sidecar & exec muster run …`) are not ours to kill.
class Guard {
 public:
  Guard(pid_t agent, std::set<pid_t> bystanders, const std::vector<int>& signals,
        std::function<void(const std::string&)> killed)
      : agent_(agent), bystanders_(std::move(bystanders)), killed_(std::move(killed)) {
    sigemptyset(&waited_);
    sigaddset(&waited_, SIGCHLD);
    for (const int signal : signals)
      sigaddset(&waited_, signal);
  }

  int run() {
    while (!reap_until_agent_ended()) {
      siginfo_t info{};
      const int signal = ::sigwaitinfo(&waited_, &info);
      if (signal <= 0 || signal == SIGCHLD) continue;
      // What the terminal driver sent has reached the agent as well: it is in our process group.
      // But for the hangup of a lost terminal, which the kernel sends to the session's leader
      // alone; where the group had it too, the agent takes two within 100 ms for one.
      if (info.si_code != SI_KERNEL || signal == SIGHUP) ::kill(agent_, signal);
    }
    return finish();
  }

 private:
  // Reaps every child that ended: as process 1 nobody else would.
  bool reap_until_agent_ended() {
    for (;;) {
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) return ended_;
      if (info.si_pid == agent_) {
        ended_ = true;
        code_ = info.si_code;
        status_ = info.si_status;
        return true;
      }
      bystanders_.erase(info.si_pid);
    }
  }

  // An agent that ended by itself has waited until nothing is left below it, but for what even
  // SIGKILL did not end: that is not waited for again.
  std::set<ProcessKey> given_up() const {
    std::set<ProcessKey> keys;
    if (code_ != CLD_EXITED) return keys;
    for (const ProcessInfo& process : descendants_of(::getpid(), bystanders_)) {
      if (process.state == 'D') keys.insert(key_of(process));
    }
    return keys;
  }

  int finish() {
    const KillReport report = kill_all_below_self(kKillLimit, bystanders_, given_up());
    for (const ProcessInfo& process : report.survivors) {
      print_line("process " + std::to_string(process.pid) + " (state " + process.state +
                 ") cannot be killed");
    }
    if (report.blind) {
      print_line("/proc cannot be read (descriptors, memory): processes may be left");
    }
    if (code_ == CLD_EXITED) return status_;
    const std::string why = "the agent (pid " + std::to_string(agent_) + ") was killed by " +
                            signal_name(status_) + "; its workers were stopped";
    print_line(why);
    if (killed_) killed_(why);
    return kAgentKilledExitCode;
  }

  pid_t agent_;
  std::set<pid_t> bystanders_;
  std::function<void(const std::string&)> killed_;
  sigset_t waited_{};
  bool ended_ = false;
  int code_ = 0;
  int status_ = 0;
};

// A stopped guardian does not reap: it must be continued when the agent ends. The kernel does it:
// the end of a pipe that only the agent holds closes with it, and that sends a signal of our
// choice. Without descriptors to be had it is left out: it is for the case of a case.
class Wake {
 public:
  Wake() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
    guardian_end_.reset(ends[0]);
    agent_end_.reset(ends[1]);
  }
  // In the agent: holds its end for as long as it lives.
  void keep_agent_end() {
    guardian_end_.reset();
    static_cast<void>(agent_end_.release());
  }
  // In the guardian.
  void arm() {
    agent_end_.reset();
    if (!guardian_end_.valid()) return;
    ::fcntl(guardian_end_.get(), F_SETSIG, SIGCONT);
    ::fcntl(guardian_end_.get(), F_SETOWN, ::getpid());
    ::fcntl(guardian_end_.get(), F_SETFL, O_ASYNC | O_NONBLOCK);
  }

 private:
  UniqueFd guardian_end_;
  UniqueFd agent_end_;
};

}  // namespace

int run_guarded(const std::function<int(const Guarded&)>& agent_main, const Guarding& guarding) {
  Guarded guarded;
  guarded.start = capture_starting_state();
  guarded.guardian = ::getpid();
  reserve_looks();
  const std::vector<pid_t> children = children_of(guarded.guardian);
  const std::vector<int> signals = guarded_signals(guarded.start, guarding.more);
  take_signals(guarded.start, signals);
  MUSTER_CHECK(::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
  Wake wake;
  const pid_t agent = ::fork();
  if (agent < 0) {
    const int error = errno;
    const std::string limit = limit_words(error);
    print_line(std::string("cannot start the agent: ") + ::strerror(error) +
               (limit.empty() ? "" : " (" + limit + ")"));
    return kAgentKilledExitCode;
  }
  if (agent == 0) {
    // Not inherited. From here on a killed guardian is noticed by GuardianWatch.
    MUSTER_CHECK(::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    // A stopped agent could not: the kernel continues it then. SIGKILL would end it as well, but
    // nobody would be left to find what its workers started and lost.
    MUSTER_CHECK(::prctl(PR_SET_PDEATHSIG, SIGCONT, 0, 0, 0) == 0);
    wake.keep_agent_end();
    return agent_main(guarded);
  }
  wake.arm();
  if (guarding.meanwhile) guarding.meanwhile();
  return Guard(agent, {children.begin(), children.end()}, signals, guarding.killed).run();
}

bool has_job_control() {
  const pid_t session = ::getsid(0);
  for (pid_t pid = ::getppid(); pid > 0;) {
    const auto process = read_process(pid);
    if (!process || process->session != session) return false;
    if (process->group != ::getpgrp()) return true;
    pid = process->parent;
  }
  return false;
}

void suspend_guardian(pid_t guardian) {
  signal_guardian(guardian, SIGSTOP);
}
void resume_guardian(pid_t guardian) {
  signal_guardian(guardian, SIGCONT);
}

// ------------------------------------------------------------------ GuardianWatch

struct GuardianWatch::State : std::enable_shared_from_this<GuardianWatch::State> {
  State(boost::asio::io_context& io, std::function<void(std::string)> callback)
      : descriptor(io), lost(std::move(callback)) {}

  boost::asio::posix::stream_descriptor descriptor;
  std::function<void(std::string)> lost;
  bool closed = false;

  void tell(const std::string& reason) {
    if (std::exchange(closed, true)) return;
    lost(reason);
  }

  void watch(boost::asio::io_context& io, pid_t guardian) {
    const std::string gone = "the guardian of this agent is gone";
    const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, guardian, 0U));
    const std::string unwatched =
        std::string("the guardian of this agent cannot be watched: ") + ::strerror(errno);
    boost::system::error_code error;
    if (pidfd >= 0) descriptor.assign(pidfd, error);
    // Asked after the descriptor is open: if it still is our parent, the descriptor is its.
    const bool alive = ::getppid() == guardian;
    if (pidfd < 0 || !alive) {
      boost::asio::post(io, [self = shared_from_this(), reason = alive ? unwatched : gone] {
        self->tell(reason);
      });
      return;
    }
    MUSTER_CHECK(!error);
    descriptor.async_wait(
        boost::asio::posix::stream_descriptor::wait_read,
        [self = shared_from_this(), gone](const boost::system::error_code& failure) {
          if (!failure) self->tell(gone);
        });
  }
};

GuardianWatch::GuardianWatch(boost::asio::io_context& io, pid_t guardian,
                             std::function<void(std::string)> lost)
    : state_(std::make_shared<State>(io, std::move(lost))) {
  state_->watch(io, guardian);
}

GuardianWatch::~GuardianWatch() {
  state_->closed = true;
  boost::system::error_code ignored;
  state_->descriptor.close(ignored);
}

}  // namespace muster::agent
