// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/signals.h"

#include <errno.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>

#include "proto/base/check.h"
#include "proto/base/failure.h"

namespace muster::agent {

StartingState capture_starting_state() {
  StartingState start;
  MUSTER_CHECK(::sigprocmask(SIG_BLOCK, nullptr, &start.mask) == 0);
  for (int signal = 1; signal <= 64; ++signal) {
    struct sigaction action {};
    // The two that the C library keeps for itself cannot be asked about; nobody ignores them.
    if (::sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_IGN) start.ignored |= std::uint64_t{1} << (signal - 1);
  }
  start.umask = ::umask(0);
  ::umask(start.umask);
  for (int which = 0; which < RLIM_NLIMITS; ++which) {
    const auto index = static_cast<std::size_t>(which);
    MUSTER_CHECK(::getrlimit(static_cast<__rlimit_resource_t>(which), &start.limits[index]) == 0);
  }
  return start;
}

std::vector<int> stop_signals(const StartingState& start) {
  std::vector<int> signals{SIGTERM};
  for (const int signal : {SIGINT, SIGHUP, SIGQUIT}) {
    if (!start.was_ignored(signal)) signals.push_back(signal);
  }
  return signals;
}

std::vector<int> default_forward_signals() {
  return {SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH};
}

std::vector<int> job_control_signals(const StartingState& start) {
  if (start.was_ignored(SIGTSTP)) return {SIGCONT};
  return {SIGTSTP, SIGCONT};
}

void take_signals(const StartingState& start, const std::vector<int>& signals) {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a log at the limit of file sizes is an error of write
  ::signal(SIGTTIN, SIG_IGN);
  ::signal(SIGTTOU, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);
  // A second, shorter list gives back what the first took.
  std::vector<int> managed = default_forward_signals();
  for (const std::vector<int>& others : {stop_signals(start), job_control_signals(start)})
    managed.insert(managed.end(), others.begin(), others.end());
  for (const int signal : managed) {
    ::signal(signal, start.was_ignored(signal) ? SIG_IGN : SIG_DFL);
  }
  sigset_t mask = start.mask;
  sigaddset(&mask, SIGCHLD);
  for (const int signal : signals) {
    sigaddset(&mask, signal);
    // An ignored signal is thrown away by the kernel once nobody blocks it; TERM is always taken.
    if (start.was_ignored(signal)) ::signal(signal, SIG_DFL);
  }
  MUSTER_CHECK(::sigprocmask(SIG_SETMASK, &mask, nullptr) == 0);
}

// ------------------------------------------------------------------ SignalWatch

struct SignalWatch::State : std::enable_shared_from_this<SignalWatch::State> {
  State(boost::asio::io_context& io, std::function<void(const SignalInfo&)> callback)
      : descriptor(io), arrived(std::move(callback)) {}

  boost::asio::posix::stream_descriptor descriptor;
  std::function<void(const SignalInfo&)> arrived;
  bool closed = false;

  void wait() {
    descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                          [self = shared_from_this()](const boost::system::error_code& error) {
                            if (error || self->closed) return;
                            self->read_all();
                            if (!self->closed) self->wait();
                          });
  }

  void read_all() {
    signalfd_siginfo info{};
    while (!closed && ::read(descriptor.native_handle(), &info, sizeof info) ==
                          static_cast<ssize_t>(sizeof info)) {
      arrived(SignalInfo{static_cast<int>(info.ssi_signo), info.ssi_code,
                         static_cast<pid_t>(info.ssi_pid)});
    }
  }
};

SignalWatch::SignalWatch(boost::asio::io_context& io, const std::vector<int>& signals,
                         std::function<void(const SignalInfo&)> arrived)
    : state_(std::make_shared<State>(io, std::move(arrived))) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals)
    sigaddset(&set, signal);
  const int fd = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
  boost::system::error_code error;
  state_->descriptor.assign(fd, error);
  MUSTER_CHECK(!error);
  state_->wait();
}

SignalWatch::~SignalWatch() {
  state_->closed = true;
  boost::system::error_code ignored;
  state_->descriptor.close(ignored);
}

}  // namespace muster::agent
