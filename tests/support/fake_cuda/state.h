// SPDX-License-Identifier: Apache-2.0
//
// The inside of the fake driver: handles, queues, memory, and what every function begins with.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/rng.h"
#include "tests/support/fake_cuda/driver.h"
#include "tests/support/fake_cuda/kernels.h"

// The driver's handles are addresses of these.
struct CUmod_st {};
struct CUfunc_st {
  std::string name;
  muster::runtime::cuda::HostKernel kernel;
  std::size_t allowed_shared = muster::runtime::cuda::kCuPlainShared;
};
struct CUevent_st {
  CUstream_st* stream = nullptr;  // where it was recorded last
  std::uint64_t recorded = 0;     // how often
  std::uint64_t done = 0;         // of which so many have run
  bool timed = false;
};
namespace muster::runtime::cuda {
struct Operation {
  std::string name;  // for the log; empty: none
  std::function<void()> run;
  // Where given: it cannot run before this says so (a collective, until all ranks are there).
  // Asked with the driver's lock held, by whoever advances the stream; State::changed wakes those
  // who wait for it.
  std::function<bool()> ready;
  CUevent_st* waits_for = nullptr;     // until its record number `count` has run …
  CUstream_st* recorded_on = nullptr;  // … which is queued here
  CUevent_st* records = nullptr;       // … or this is that record
  std::uint64_t count = 0;
};
}  // namespace muster::runtime::cuda
struct CUgraph_st {
  std::vector<muster::runtime::cuda::Operation> operations;
  bool broken = false;  // by something that must not be called while it was captured
};
struct CUgraphExec_st {
  std::vector<muster::runtime::cuda::Operation> operations;
};
struct CUstream_st {
  int number = 0;
  int device = 0;
  std::deque<muster::runtime::cuda::Operation> queue;
  bool running = false;                 // by some thread
  std::unique_ptr<CUgraph_st> capture;  // while it is captured: what was queued
};
struct CUctx_st {
  int device = 0;
};

namespace muster::runtime::cuda {

inline constexpr std::byte kFakeImage[16] = {std::byte{0x50}, std::byte{0xed}, std::byte{0x55},
                                             std::byte{0xba}};

struct Allocation {
  std::size_t size = 0;
  int device = -1;  // -1: pinned host memory
};

using Lock = std::unique_lock<std::mutex>;

struct FakeDriver::State {
  explicit State(Options given)
      : options(given), rng(given.seed), contexts(static_cast<std::size_t>(given.devices)) {
    for (int i = 0; i < given.devices; ++i)
      contexts[static_cast<std::size_t>(i)].device = i;
  }

  // ---- memory

  void* allocate(std::size_t size, int device);
  bool release(void* memory, bool on_host);
  std::size_t used(int device) const;
  // The allocation that holds all of it.
  const Allocation* holds(const void* at, std::size_t size) const;
  bool on_device(const void* at, std::size_t size) const;
  bool pinned(const void* at, std::size_t size) const;

  // ---- queues

  enum class Patience : std::uint8_t { kWait, kTry };

  // Runs the stream's first operation; false: it has none, or (kTry) none that can run now. What
  // it waits for runs before.
  bool advance(Lock& lock, CUstream_st* stream, Patience patience = Patience::kWait);
  // Until the event's record number `count`, queued on `stream`, has run; false (kTry): it cannot
  // now.
  bool finish(Lock& lock, CUevent_st* event, CUstream_st* stream, std::uint64_t count,
              Patience patience = Patience::kWait);
  void drain(Lock& lock, CUstream_st* stream);
  // All streams of one device.
  void drain_all(Lock& lock, int device);
  void add(Lock& lock, CUstream_st* stream, Operation operation);
  CuResult failure(const char* function) const;

  Options options;
  Rng rng;
  DriverApi api;
  std::mutex mutex;
  std::condition_variable changed;
  bool initialised = false;
  std::vector<CUctx_st> contexts;
  std::map<void*, Allocation> allocations;
  std::set<CUstream_st*> streams;
  std::set<CUevent_st*> events;
  std::vector<std::unique_ptr<CUevent_st>> dead_events;  // queues may still name them
  std::set<CUmod_st*> modules;
  std::set<CUgraph_st*> graphs;
  std::set<CUgraphExec_st*> execs;
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
  int last_stream = 0;
  std::vector<std::string> ran;
  std::vector<std::string> waits;
  std::map<std::string, CuResult> failures;
};

// The one that exists, the calling thread's context, and the stream that it captures.
extern FakeDriver::State* fake_driver;
// constinit: read straight, not through a wrapper that the sanitizers stumble over.
extern constinit thread_local CUctx_st* fake_context;
extern constinit thread_local CUstream_st* fake_capturing;

inline void* pointer(CuAddress at) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(at));
}

// Breaks what the calling thread captures.
inline CuResult refuse_captured() {
  fake_capturing->capture->broken = true;
  return kCuCaptureUnsupported;
}
// Whether a thread that captures must not call it.
bool spoils_capture(const char* function);

// What every function that needs a context begins with.
template <class Body>
CuResult in_context(const char* function, Body body) {
  Lock lock(fake_driver->mutex);
  if (const CuResult failed = fake_driver->failure(function); failed != kCuSuccess) return failed;
  if (!fake_driver->initialised) return kCuNotInitialized;
  if (fake_context == nullptr) return kCuInvalidContext;
  if (fake_capturing != nullptr && spoils_capture(function)) return refuse_captured();
  return body(*fake_driver, lock);
}
template <class Body>
CuResult on_stream(const char* function, CuStream stream, Body body) {
  return in_context(function, [&](FakeDriver::State& state, Lock& lock) {
    if (!state.streams.contains(stream)) return kCuInvalidHandle;
    return body(state, lock);
  });
}
template <class Body>
CuResult on_device(const char* function, CuDevice device, Body body) {
  const Lock lock(fake_driver->mutex);
  if (const CuResult failed = fake_driver->failure(function); failed != kCuSuccess) return failed;
  if (!fake_driver->initialised) return kCuNotInitialized;
  if (device < 0 || device >= fake_driver->options.devices) return kCuInvalidDevice;
  return body(*fake_driver);
}

// Fill their part of the table.
void add_device_calls(DriverApi& api);
void add_graph_calls(DriverApi& api);
void add_launch_calls(DriverApi& api);
void add_memory_calls(DriverApi& api);
void add_stream_calls(DriverApi& api);

}  // namespace muster::runtime::cuda
