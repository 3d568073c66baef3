// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/train/overseer.h"

#include <algorithm>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <utility>

namespace muster::runtime {

ProcessOverseer::ProcessOverseer(Options options) : options_(std::move(options)) {
  sigemptyset(&signals_);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    struct sigaction action {};
    // What was ignored at the start (nohup, a script's &) stays so.
    const bool ignored = ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (!ignored) sigaddset(&signals_, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  thread_ = std::thread([this] { watch(); });
}

ProcessOverseer::~ProcessOverseer() {
  closing_ = true;
  thread_.join();
}

void ProcessOverseer::set_storage_timeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  options_.storage_timeout = timeout;
}

void ProcessOverseer::watch() {
  const timespec tick{0, 50'000'000};
  while (!closing_) {
    const int signal = ::sigtimedwait(&signals_, nullptr, &tick);
    if (signal > 0) on_signal(signal);
    look();
  }
}

bool ProcessOverseer::stop_file_exists() const {
  return !options_.stop_file.empty() && ::access(options_.stop_file.c_str(), F_OK) == 0;
}

void ProcessOverseer::on_signal(int signal) {
  const std::lock_guard lock(mutex_);
  const std::string name = std::string("SIG") + ::sigabbrev_np(signal);
  if (options_.launched && !stop_file_exists()) {
    end(kExitPeerLost, name + " without a planned stop: the job is coming down");
  } else if (!options_.launched && stop_) {
    end(128 + signal, "a second " + name + ": ending without a checkpoint");
  } else if (!stop_.exchange(true)) {
    signalled_ = Clock::now();
  }
}

void ProcessOverseer::look() {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (in_storage_ && now - began_ > options_.storage_timeout) {
    end(kExitStorage, "the checkpoint storage did not answer within " +
                          std::to_string(std::chrono::duration_cast<std::chrono::seconds>(
                                             options_.storage_timeout)
                                             .count()) +
                          " s");
  }
  if (!in_collective_ || finishing_ || signalled_ == Clock::time_point()) return;
  Clock::duration patience = std::max<Clock::duration>(options_.stuck_after, slowest_peer());
  if (awaits_storage_) patience = std::max<Clock::duration>(patience, options_.storage_timeout);
  if (now - std::max(began_, signalled_) > patience) {
    end(kExitPeerLost, "asked to stop, but no other rank came to the next collective");
  }
}

void ProcessOverseer::end(int code, const std::string& why) {
  if (std::exchange(retired_, true)) return;
  options_.end(code, why);
}

// How long a peer may compute until it comes to the next collective.
ProcessOverseer::Clock::duration ProcessOverseer::slowest_peer() const {
  return 2 * longest_compute_;
}

bool ProcessOverseer::stop_is_due() {
  const std::lock_guard lock(mutex_);
  if (finishing_ || awaits_storage_ || signalled_ == Clock::time_point()) return false;
  return Clock::now() - signalled_ > slowest_peer();
}

bool ProcessOverseer::stop_requested() {
  return stop_ || stop_file_exists();
}

void ProcessOverseer::collective_begins() {
  const std::lock_guard lock(mutex_);
  began_ = Clock::now();
  in_collective_ = true;
  if (last_collective_ != Clock::time_point()) {
    longest_compute_ = std::max(longest_compute_, began_ - last_collective_);
  }
}

void ProcessOverseer::collective_ends() {
  const std::lock_guard lock(mutex_);
  in_collective_ = false;
  awaits_storage_ = false;
  last_collective_ = Clock::now();
}

void ProcessOverseer::storage_begins() {
  const std::lock_guard lock(mutex_);
  began_ = Clock::now();
  in_storage_ = true;
}

void ProcessOverseer::storage_ends() {
  const std::lock_guard lock(mutex_);
  in_storage_ = false;
  // What was spent here is no measure of how long a peer may compute.
  last_collective_ = Clock::time_point();
}

void ProcessOverseer::awaits_storage() {
  const std::lock_guard lock(mutex_);
  awaits_storage_ = true;
}

void ProcessOverseer::finishing() {
  const std::lock_guard lock(mutex_);
  finishing_ = true;
}

void ProcessOverseer::retire() {
  const std::lock_guard lock(mutex_);
  retired_ = true;
}

}  // namespace muster::runtime
