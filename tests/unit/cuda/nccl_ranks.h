// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads: a device each of one fake driver, one fake NCCL, one store, a clock that only
// the test moves, and a note of how each would have ended its process.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "proto/base/check.h"
#include "tests/support/fake_cuda/driver.h"
#include "tests/support/fake_cuda/nccl.h"
#include "worker_runtime/cuda/communicator.h"

namespace muster::runtime::cuda {

// CHECK is not for several threads: these end the process and name the line.
template <class T>
T must(absl::StatusOr<T> made) {
  if (!made.ok()) check_failed(made.status().ToString().c_str(), __FILE__, __LINE__);
  return *std::move(made);
}
inline void must(const absl::Status& status) {
  if (!status.ok()) check_failed(status.ToString().c_str(), __FILE__, __LINE__);
}

class FakeStore : public GenerationStore {
 public:
  absl::Status set(const std::string& key, const std::string& value) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !frozen_; });
    if (!outage_.ok()) return outage_;
    values_[key] = value;
    changed_.notify_all();
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> get(const std::string& key, Duration wait) override {
    std::unique_lock lock(mutex_);
    const auto there = [&] { return values_.contains(key) || !outage_.ok(); };
    if (!changed_.wait_for(lock, wait, there)) return absl::NotFoundError(key);
    if (!outage_.ok()) return outage_;
    return values_[key];
  }
  absl::StatusOr<std::int64_t> add(const std::string& key, std::int64_t delta) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !frozen_; });
    if (!outage_.ok()) return outage_;
    return sums_[key] += delta;
  }
  // Every call fails like this.
  void fail(const absl::Status& outage) {
    const std::lock_guard lock(mutex_);
    outage_ = outage;
    changed_.notify_all();
  }
  // Writers do not come back until it thaws.
  void freeze(bool frozen) {
    const std::lock_guard lock(mutex_);
    frozen_ = frozen;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::int64_t> sums_;
  absl::Status outage_;
  bool frozen_ = false;
};

class FakeClock {
 public:
  Instant now() const { return {Duration(at_.load())}; }
  void advance(Duration by) { at_ += by.count(); }

 private:
  std::atomic<std::int64_t> at_{0};
};

class Ranks {
 public:
  explicit Ranks(int size, FakeDriver::Pace pace = FakeDriver::Pace::kLazy, std::uint64_t seed = 1,
                 FakeNccl::Options nccl_options = FakeNccl::Options())
      : driver({.devices = size, .pace = pace, .seed = seed}), nccl(nccl_options), size_(size) {
    MUSTER_CHECK(size <= 8);
    for (int rank = 0; rank < size; ++rank)
      ends_.emplace_back();
  }
  ~Ranks() { finish(); }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  CommunicatorOptions options(int rank) {
    CommunicatorOptions options;
    options.rank = rank;
    options.size = size_;
    options.generation = 3;
    options.limits = limits;
    options.facts = {.host = "alpha/b007",
                     .device = "Fake GPU",
                     .uuid = "GPU-" + std::to_string(rank),
                     .pci_bus = "",
                     .capability = 90,
                     .driver = 580,
                     .driver_cuda = 13000,
                     .libraries_cuda = 13000,
                     .nccl = 22809};
    options.outstanding = 8;
    options.tick = 1ms;
    options.listen = 20ms;
    options.answers = 30s;  // they all answer
    options.now = [this, rank] {
      ++reads_[static_cast<std::size_t>(rank)];
      return clock.now();
    };
    options.stopping = [this] { return stopping.load(); };
    options.failed = [this, rank](const RankEnd& end) { note(rank, end, false); };
    options.end = [this, rank](const RankEnd& end) { note(rank, end, true); };
    return options;
  }

  // Starts a rank's thread; what it throws or leaves undone is the test's failure.
  using Body = std::function<void(int rank, const std::shared_ptr<Device>& device)>;
  void start(int rank, Body body) {
    threads_.emplace_back([this, rank, body = std::move(body)] {
      const auto device = Device::open(driver.api(), rank, FakeDriver::images());
      MUSTER_CHECK(device.ok());
      body(rank, *device);
    });
  }
  void start_all(const Body& body) {
    for (int rank = 0; rank < size_; ++rank)
      start(rank, body);
  }
  void finish() {
    for (std::thread& thread : threads_)
      thread.join();
    threads_.clear();
  }
  absl::StatusOr<std::unique_ptr<Communicator>> connect(int rank,
                                                        const std::shared_ptr<Device>& device) {
    return Communicator::connect(nccl.api(), device, store, options(rank));
  }

  // Of all ranks, before any of them goes on.
  std::unique_ptr<Communicator> connect_all(int rank, const std::shared_ptr<Device>& device) {
    auto comm = must(connect(rank, device));
    signal("up");
    await("up", size_);
    return comm;
  }

  // As told to `failed` (the first time) and to `end`.
  struct Ends {
    std::vector<RankEnd> failed;
    std::vector<RankEnd> ended;
  };
  Ends ends(int rank) {
    const std::lock_guard lock(mutex_);
    return ends_[static_cast<std::size_t>(rank)];
  }
  RankEnd wait_for_end(int rank) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !ends_[static_cast<std::size_t>(rank)].ended.empty(); });
    return ends_[static_cast<std::size_t>(rank)].ended.front();
  }
  RankEnd wait_for_failure(int rank) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !ends_[static_cast<std::size_t>(rank)].failed.empty(); });
    return ends_[static_cast<std::size_t>(rank)].failed.front();
  }

  // Time passes in steps, each of which all ranks' watchdogs look at, until one calls it a failure.
  void pass_until_failure(Duration step) {
    pass(step, [this] { return any_failed(); });
  }
  // … until all have ended; who has ended looks no more.
  void pass_until_ended(Duration step) {
    pass(step, [this] { return all_ended(); });
  }
  bool all_ended() {
    const std::lock_guard lock(mutex_);
    for (const Ends& one : ends_)
      if (one.ended.empty()) return false;
    return true;
  }
  bool any_failed() {
    const std::lock_guard lock(mutex_);
    for (const Ends& one : ends_)
      if (!one.failed.empty()) return true;
    return false;
  }

  // Threads of a test wait for each other here.
  void signal(const std::string& name) {
    const std::lock_guard lock(mutex_);
    ++signals_[name];
    changed_.notify_all();
  }
  void await(const std::string& name, int count = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return signals_[name] >= count; });
  }

  FakeDriver driver;
  FakeNccl nccl;
  FakeStore store;
  FakeClock clock;
  std::atomic<bool> stopping{false};
  CommunicatorLimits limits;

 private:
  void pass(Duration step, const std::function<bool()>& over) {
    while (!over()) {
      std::vector<std::uint64_t> before;
      for (int rank = 0; rank < size_; ++rank)
        before.push_back(reads_[static_cast<std::size_t>(rank)]);
      clock.advance(step);
      for (int rank = 0; rank < size_; ++rank) {
        const auto r = static_cast<std::size_t>(rank);
        while (reads_[r] < before[r] + 2 && ends(rank).ended.empty() && !over())
          std::this_thread::yield();
      }
    }
  }
  void note(int rank, const RankEnd& end, bool ended) {
    const std::lock_guard lock(mutex_);
    Ends& all = ends_[static_cast<std::size_t>(rank)];
    (ended ? all.ended : all.failed).push_back(end);
    changed_.notify_all();
  }

  int size_;
  std::array<std::atomic<std::uint64_t>, 8> reads_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Ends> ends_;
  std::map<std::string, int> signals_;
  std::vector<std::thread> threads_;
};

}  // namespace muster::runtime::cuda
