// SPDX-License-Identifier: Apache-2.0
//
// Runs one function on every rank of a group: as threads over `local`, or as threads with their
// own sockets over `tcp`.
#pragma once

#include <condition_variable>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <absl/status/statusor.h>

#include "worker_runtime/collectives/local.h"
#include "worker_runtime/collectives/tcp.h"

namespace muster::runtime {

using RankBody = std::function<void(Collectives&)>;

inline void run_local(int size, const RankBody& body,
                      std::chrono::milliseconds deadline = std::chrono::minutes(1)) {
  LocalGroup group(size, 3, deadline);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&group, &body, rank] { body(*group.member(rank)); });
  }
  for (std::thread& thread : threads)
    thread.join();
}

// A key-value store for the ranks of one process.
class SharedStore : public BootstrapStore {
 public:
  absl::Status set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> get(const std::string& key, std::chrono::milliseconds wait) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, wait, [&] { return values_.contains(key); })) {
      return absl::DeadlineExceededError("no such key in time");
    }
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

inline TcpOptions tcp_options(int rank, int size, std::chrono::milliseconds deadline) {
  TcpOptions options;
  options.rank = rank;
  options.size = size;
  options.generation = 3;
  options.address = "127.0.0.1";
  options.connect_timeout = std::chrono::seconds(30);
  options.deadline = deadline;
  return options;
}

inline void run_tcp(int size, const RankBody& body,
                    std::chrono::milliseconds deadline = std::chrono::minutes(1)) {
  std::signal(SIGPIPE, SIG_IGN);  // as in muster-train: gloo writes to peers that may be gone
  SharedStore store;
  std::vector<std::thread> threads;
  std::vector<absl::Status> statuses(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto group = connect_tcp(tcp_options(rank, size, deadline), store);
      statuses[static_cast<std::size_t>(rank)] = group.status();
      if (group.ok()) body(**group);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const absl::Status& status : statuses) {
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  }
}

}  // namespace muster::runtime
