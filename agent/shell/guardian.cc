// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/guardian.h"

#include <algorithm>
#include <chrono>
#include <errno.h>
#include <fcntl.h>
#include <new>
#include <poll.h>
#include <set>
#include <signal.h>
#include <string.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>

#include "agent/core/guard_patience.h"
#include "agent/shell/descendants.h"
#include "agent/shell/unique_fd.h"
#include "proto/base/check.h"
#include "proto/base/job.h"

namespace muster::agent {
namespace {

constexpr Duration kKillLimit = 5s;
// For an agent that was killed to be gone; one in uninterruptible sleep is not.
constexpr Duration kDyingLimit = 1s;
// For the agent's loop to see that the guardian is gone, and for all that it does then.
constexpr Duration kNoticeLimit = 1s;
constexpr Duration kLossLimit = 15s;
constexpr int kLinePatienceMs = 250;
constexpr Duration kNotingLimit = 1s;

// One write, so that the line is not torn; a closed stderr is no reason to do anything else.
void print_line(const std::string& text) {
  const std::string line = "muster: " + text + "\n";
  // Nor does one that nobody reads: a pipe that is ready takes a short line whole (pipe(7)).
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&ready, 1, kLinePatienceMs) <= 0) return;
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
        const Guarded& guarded, const Guarding& guarding)
      : agent_(agent),
        bystanders_(std::move(bystanders)),
        page_(*guarded.page),
        stops_(stop_signals(guarded.start)),
        patience_(guarding.limit),
        killed_(guarding.killed) {
    stops_.insert(stops_.end(), guarding.more_stops.begin(), guarding.more_stops.end());
    sigemptyset(&waited_);
    sigaddset(&waited_, SIGCHLD);
    for (const int signal : signals)
      sigaddset(&waited_, signal);
  }

  int run() {
    while (!reap_until_agent_ended() && !stuck_) {
      siginfo_t info{};
      const int signal = next_signal(patience_.deadline(), info);
      if (signal > 0 && signal != SIGCHLD) pass_on(signal, info.si_code);
      switch (patience_.look(now(), page_.heard)) {
        case GuardPatience::Order::kWait: break;
        case GuardPatience::Order::kSendAgain: ::kill(agent_, told_); break;
        case GuardPatience::Order::kKill: end_agent(); break;
      }
    }
    return finish();
  }

 private:
  static Instant now() { return {std::chrono::steady_clock::now().time_since_epoch()}; }

  // 0: none until then.
  int next_signal(std::optional<Instant> until, siginfo_t& info) const {
    if (!until) return std::max(::sigwaitinfo(&waited_, &info), 0);
    const Duration left = std::max(*until - now(), Duration(0));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec patience{seconds.count(), (left - seconds).count()};
    return std::max(::sigtimedwait(&waited_, &info, &patience), 0);
  }

  // What the terminal driver sent has reached the agent as well: it is in our process group. But
  // for the hangup of a lost terminal, which the kernel sends to the session's leader alone; where
  // the group had it too, the agent takes two within 100 ms for one.
  void pass_on(int signal, int code) {
    const bool passed = code != SI_KERNEL || signal == SIGHUP;
    if (std::find(stops_.begin(), stops_.end(), signal) != stops_.end()) {
      if (told_ == 0) told_ = signal;
      patience_.told(now(), page_.heard);
    }
    if (passed) ::kill(agent_, signal);
  }

  // Told to stop, and it does not act. It may be in a state that SIGKILL does not end.
  void end_agent() {
    hangs_ = true;
    ::kill(agent_, SIGKILL);
    stuck_ = !wait_for_child(kDyingLimit, [this] { return reap_until_agent_ended(); });
  }

  static bool wait_for_child(Duration limit, const std::function<bool()>& over) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (const Instant until = now() + limit; !over();) {
      if (now() >= until) return false;
      constexpr timespec kLook{0, 50'000'000};
      ::sigtimedwait(&child, nullptr, &kLook);
    }
    return true;
  }

  void note(int exit_code, const std::string& why) const {
    if (!killed_) return;
    const pid_t noting = ::fork();
    if (noting == 0) {
      killed_(exit_code, why);
      ::_exit(0);
    }
    const auto noted = [noting] { return ::waitpid(noting, nullptr, WNOHANG) != 0; };
    if (noting > 0 && !wait_for_child(kNotingLimit, noted)) ::kill(noting, SIGKILL);
  }

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
    if (stuck_) {
      if (const auto agent = read_process(agent_)) keys.insert(key_of(*agent));
    }
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
    const std::string why = why_it_ended();
    const int exit_code = hangs_ ? 128 + told_ : kAgentKilledExitCode;
    print_line(why);
    note(exit_code, why);
    return exit_code;
  }

  std::string why_it_ended() const {
    const std::string agent = "the agent (pid " + std::to_string(agent_) + ") ";
    if (!hangs_) {
      return agent + "was killed by " + signal_name(status_) + "; its workers were stopped";
    }
    return agent + "did not act on " + signal_name(told_) + (stuck_ ? " nor on SIGKILL" : "") +
           ": it hangs, in a file system perhaps; its workers were killed";
  }

  pid_t agent_;
  std::set<pid_t> bystanders_;
  GuardPage& page_;
  std::vector<int> stops_;
  GuardPatience patience_;
  std::function<void(int, const std::string&)> killed_;
  sigset_t waited_{};
  int told_ = 0;        // the first signal to stop
  bool hangs_ = false;  // so we ended it
  bool stuck_ = false;  // … or not even SIGKILL did
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

GuardPage* make_page() {
  void* const page =
      ::mmap(nullptr, sizeof(GuardPage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return page == MAP_FAILED ? nullptr : new (page) GuardPage;
}

// In the agent, on a thread of its own: does what its loop does not when the guardian is gone.
// Nobody else waits for children then: the loop sits in some call, and what it is told is too late.
void stand_in(pid_t guardian, const GuardPage& page) {
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, guardian, 0U)));
  if (!pidfd.valid()) return;  // GuardianWatch cannot watch either, and ends the agent
  pollfd ended{pidfd.get(), POLLIN, 0};
  // Asked after the descriptor is open: if it still is our parent, the descriptor is its.
  while (::getppid() == guardian && ::poll(&ended, 1, -1) <= 0) {
  }
  std::this_thread::sleep_for(kNoticeLimit);
  if (page.loss_noticed) std::this_thread::sleep_for(kLossLimit);
  kill_all_below_self(kKillLimit);
  print_line("the guardian of this agent is gone, and the agent hangs; its workers were killed");
  ::_exit(kAgentKilledExitCode);
}

// Without a thread to be had the loop is all there is.
void start_stand_in(pid_t guardian, const GuardPage& page) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(stand_in, guardian, std::cref(page)).detach();
  } catch (const std::system_error&) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

int cannot_start(int error) {
  const std::string limit = limit_words(error);
  print_line(std::string("cannot start the agent: ") + ::strerror(error) +
             (limit.empty() ? "" : " (" + limit + ")"));
  return kAgentKilledExitCode;
}

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
  guarded.page = make_page();
  if (guarded.page == nullptr) return cannot_start(errno);
  Wake wake;
  const pid_t agent = ::fork();
  if (agent < 0) return cannot_start(errno);
  if (agent == 0) {
    // Not inherited. From here on a killed guardian is noticed by GuardianWatch.
    MUSTER_CHECK(::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    // A stopped agent could not: the kernel continues it then. SIGKILL would end it as well, but
    // nobody would be left to find what its workers started and lost.
    MUSTER_CHECK(::prctl(PR_SET_PDEATHSIG, SIGCONT, 0, 0, 0) == 0);
    wake.keep_agent_end();
    start_stand_in(guarded.guardian, *guarded.page);
    return agent_main(guarded);
  }
  wake.arm();
  if (guarding.meanwhile) guarding.meanwhile();
  return Guard(agent, {children.begin(), children.end()}, signals, guarded, guarding).run();
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
  State(boost::asio::io_context& io, GuardPage* shared, std::function<void(std::string)> callback)
      : descriptor(io), page(shared), lost(std::move(callback)) {}

  boost::asio::posix::stream_descriptor descriptor;
  GuardPage* page;
  std::function<void(std::string)> lost;
  bool closed = false;

  void tell(const std::string& reason) {
    if (std::exchange(closed, true)) return;
    if (page != nullptr) page->loss_noticed = true;
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

GuardianWatch::GuardianWatch(boost::asio::io_context& io, pid_t guardian, GuardPage* page,
                             std::function<void(std::string)> lost)
    : state_(std::make_shared<State>(io, page, std::move(lost))) {
  state_->watch(io, guardian);
}

GuardianWatch::~GuardianWatch() {
  state_->closed = true;
  boost::system::error_code ignored;
  state_->descriptor.close(ignored);
}

}  // namespace muster::agent
