// SPDX-License-Identifier: Apache-2.0
//
// A rank as a process, around whatever it does: the overseer, the way to the other ranks, and how
// it ends. Why it ended stands on standard error and in the launcher's error file.
//
// Thread rule: one a process, from its first thread, before any other is started.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "worker_runtime/collectives/collectives.h"
#include "worker_runtime/collectives/local.h"
#include "worker_runtime/cuda/engine/rank_device.h"
#include "worker_runtime/train/environment.h"
#include "worker_runtime/train/error_file.h"
#include "worker_runtime/train/overseer.h"

namespace muster::runtime {

class RankProcess {
 public:
  // From here on the agent knows that this worker polls the stop file.
  explicit RankProcess(LauncherFacts facts);
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  const LauncherFacts& facts() const { return facts_; }
  ProcessOverseer& overseer() { return overseer_; }

  // Meets the other ranks. 0; or the exit code, and why was said. `patience`: one exchange may
  // take as long, if that is longer than usual.
  int connect(std::chrono::milliseconds patience = {});
  // REQUIRES: connect() gave 0.
  Collectives& group() { return *group_; }
  // For these ranks' devices; refers to this object.
  cuda::DeviceRequest device_request(cuda::DeviceWish wish);

  // For people, by rank 0 alone.
  void note(const std::string& text) const;
  // How far it is, for the launcher.
  void report(const ProgressReport& progress) const;

  // Says why and gives the report's exit code. The overseer ends nothing any more.
  int failed(const ErrorReport& report);
  // Of what went wrong at a peer, or on this rank's device.
  ErrorReport report_of(const absl::Status& status) const;

 private:
  class Store;
  void write_error(const ErrorReport& report) const;
  void tell(const ErrorReport& report) const;
  void end_now(int code, const std::string& why) const;

  LauncherFacts facts_;
  mutable std::mutex failing_mutex_;
  std::optional<ErrorReport> failing_;  // the communicator has failed
  ProcessOverseer overseer_;
  std::unique_ptr<Store> store_;  // with several ranks; outlives what uses it
  std::unique_ptr<LocalGroup> local_;
  std::unique_ptr<Collectives> group_;
};

}  // namespace muster::runtime
