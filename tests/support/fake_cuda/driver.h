// SPDX-License-Identifier: Apache-2.0
//
// A CUDA driver without a device. Device memory is host memory, kernels run through the host
// executor, streams are queues. It is strict where a real driver is, and unkind where a real one
// may be:
//
//   - what is queued runs when `Pace` says, in any order that streams and events allow. kLazy runs
//     nothing until somebody waits for it, so that a missing event shows as old data;
//   - device memory starts as NaN bytes; a launch needs the kernel's own block size and shared
//     memory (above 48 KiB only after cuFuncSetAttribute); addresses of copies must lie in one
//     allocation; handles must be alive; memory runs out where Options say;
//   - pinned host memory is read and written when the copy runs, other host memory at the call;
//   - what a thread captures does not run; what may wait for a stream, and memory that is not
//   pinned,
//     are refused meanwhile and spoil the capture.
//
// A function of the table that the fake does not play ends the process: nothing is silently a
// success. Handles are leaked to nobody: alive() counts them.
//
// Thread rule: everything may be called from any thread, as with a real driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker_runtime/cuda/driver_api.h"
#include "worker_runtime/cuda/images.h"

namespace muster::runtime::cuda {

class FakeDriver {
 public:
  enum class Pace : std::uint8_t {
    kEager,  // at once, as far as events allow
    kLazy,   // only when waited for
    kRandom  // a few at every call, of a stream drawn by the seed
  };
  struct Options {
    int devices = 1;
    std::size_t memory = std::size_t{1} << 34U;  // bytes of each
    int driver_version = 13000;
    int capability = 90;  // 9.0
    Pace pace = Pace::kLazy;
    std::uint64_t seed = 1;
    bool alone = true;  // false: what is waited for may be another process's, which wakes nobody
  };

  // One at a time in a process.
  explicit FakeDriver(Options options);
  FakeDriver() : FakeDriver(Options()) {}
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  const DriverApi& api() const;
  // What it takes, with every kernel of kernels/list.h.
  static const std::vector<DeviceImage>& images();

  // The kernels that ran and the copies, in the order in which they did: "s1 muster_add",
  // "s2 to_host 64". Streams are numbered from 1 as they are made.
  std::vector<std::string> log() const;
  void clear_log();
  // The calls that waited until something had run, or with a real driver may have: an event or a
  // stream that was waited for, memory that is not pinned, memory given back.
  std::vector<std::string> waits() const;
  // Streams, events, graphs, allocations and modules that were not given back.
  std::size_t alive() const;
  // Every later call of this function of the table gives `result`; kCuSuccess: as usual again.
  void fail(const std::string& function, CuResult result);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace muster::runtime::cuda
