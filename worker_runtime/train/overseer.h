// SPDX-License-Identifier: Apache-2.0
//
// Watches over a rank's process from a thread of its own, which alone receives the stop signals.
//
//   A planned stop (the stop file exists; or nobody launched us): stop_requested() turns true and
//     the run ends by agreement of all ranks. If after the signal this rank sits in one collective
//     for 2 s, or twice the longest time it computed between two, its peers are not coming: 81.
//     (While rank 0 saves, the others wait for it as long as the storage may take.)
//   Another stop signal means that the job is coming down because something failed: 81 at once,
//     nothing is saved. (Without a launcher a second signal ends at once.)
//   Storage that does not answer within the time-out: 84. The blocked thread cannot say so itself.
//
// Thread rule: the marking calls come from the thread that trains; construct before any other
// thread is started (the signals are blocked from then on, in all later threads).
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <signal.h>
#include <string>
#include <thread>

#include "worker_runtime/train/trainer.h"

namespace muster::runtime {

class ProcessOverseer : public Overseer {
 public:
  struct Options {
    std::string stop_file = {};  // empty: planned stops are not announced
    bool launched = false;       // by a launcher that manages the other ranks
    std::chrono::milliseconds storage_timeout = std::chrono::minutes(10);
    std::chrono::milliseconds stuck_after = std::chrono::seconds(2);
    // Ends the process with this code, for this reason; called from the watching thread, once.
    std::function<void(int code, const std::string& why)> end = {};
  };

  explicit ProcessOverseer(Options options);
  ~ProcessOverseer() override;
  ProcessOverseer(const ProcessOverseer&) = delete;
  ProcessOverseer& operator=(const ProcessOverseer&) = delete;

  // Takes effect from the next look on.
  void set_storage_timeout(std::chrono::milliseconds timeout);

  bool stop_requested() override;
  // A stop was asked for by a signal, and a peer that computes has had the time since: whoever
  // waits for one on other ways than the watched collectives may now lose patience.
  bool stop_is_due();
  void collective_begins() override;
  void collective_ends() override;
  void storage_begins() override;
  void storage_ends() override;
  void awaits_storage() override;
  void finishing() override;

  // From here on `end` is not called any more; waits for a call that is under way.
  void retire();

 private:
  using Clock = std::chrono::steady_clock;
  void watch();
  void on_signal(int signal);
  void look();
  void end(int code, const std::string& why);  // with mutex_ held
  bool stop_file_exists() const;
  Clock::duration slowest_peer() const;  // with mutex_ held

  Options options_;
  sigset_t signals_{};
  std::atomic<bool> closing_{false};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // of what follows
  bool retired_ = false;
  bool finishing_ = false;
  Clock::time_point signalled_{};
  bool in_collective_ = false;
  bool in_storage_ = false;
  bool awaits_storage_ = false;
  Clock::time_point began_{};  // of the collective or the storage operation
  Clock::time_point last_collective_{};
  Clock::duration longest_compute_{0};
  std::thread thread_;
};

}  // namespace muster::runtime
