// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/state.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <string>

#include "proto/base/check.h"

namespace muster::runtime::cuda {

FakeDriver::State* fake_driver = nullptr;
constinit thread_local CUctx_st* fake_context = nullptr;
constinit thread_local CUstream_st* fake_capturing = nullptr;

// A real driver forbids a thread in a thread-local capture what may wait for a stream: here, and
// maybe not everywhere there, that is all of these.
bool spoils_capture(const char* function) {
  static const std::set<std::string> kSpoiling{
      "cuStreamSynchronize", "cuStreamQuery",    "cuStreamDestroy", "cuEventSynchronize",
      "cuEventQuery",        "cuMemAlloc",       "cuMemFree",       "cuMemHostAlloc",
      "cuMemFreeHost",       "cuModuleLoadData", "cuModuleUnload"};
  return kSpoiling.contains(function);
}

void* FakeDriver::State::allocate(std::size_t size, int device) {
  void* memory = ::operator new (size, std::align_val_t{256});
  std::memset(memory, 0xff, size);
  allocations[memory] = {size, device};
  return memory;
}

bool FakeDriver::State::release(void* memory, bool on_host) {
  const auto found = allocations.find(memory);
  if (found == allocations.end() || (found->second.device < 0) != on_host) return false;
  ::operator delete (memory, std::align_val_t{256});
  allocations.erase(found);
  return true;
}

std::size_t FakeDriver::State::used(int device) const {
  std::size_t sum = 0;
  for (const auto& [memory, allocation] : allocations)
    sum += allocation.device == device ? allocation.size : 0;
  return sum;
}

const Allocation* FakeDriver::State::holds(const void* at, std::size_t size) const {
  auto found = allocations.upper_bound(const_cast<void*>(at));
  if (found == allocations.begin()) return nullptr;
  --found;
  const auto* first = static_cast<const std::byte*>(found->first);
  const auto offset = static_cast<const std::byte*>(at) - first;
  const bool fits = static_cast<std::size_t>(offset) + size <= found->second.size;
  return fits ? &found->second : nullptr;
}

bool FakeDriver::State::on_device(const void* at, std::size_t size) const {
  const Allocation* allocation = holds(at, size);
  return allocation != nullptr && allocation->device >= 0;
}

bool FakeDriver::State::pinned(const void* at, std::size_t size) const {
  const Allocation* allocation = holds(at, size);
  return allocation != nullptr && allocation->device < 0;
}

bool FakeDriver::State::advance(Lock& lock, CUstream_st* stream, Patience patience) {
  for (;;) {
    changed.wait(lock, [&] { return !streams.contains(stream) || !stream->running; });
    // Its owner may have drained and destroyed it while this thread waited.
    if (!streams.contains(stream) || stream->queue.empty()) return false;
    const Operation& front = stream->queue.front();
    if (front.waits_for != nullptr && front.waits_for->done < front.count) {
      // Another thread may run `front` meanwhile: look again.
      if (!finish(lock, front.waits_for, front.recorded_on, front.count, patience)) return false;
    } else if (front.ready && !front.ready()) {
      if (patience == Patience::kTry) return false;
      if (options.alone) {
        changed.wait(lock);
      } else {
        changed.wait_for(lock, std::chrono::microseconds(200));
      }
    } else {
      break;
    }
  }
  stream->running = true;
  const Operation operation = std::move(stream->queue.front());
  stream->queue.pop_front();
  if (operation.run) {
    lock.unlock();
    operation.run();
    lock.lock();
  }
  if (!operation.name.empty()) {
    ran.push_back("s" + std::to_string(stream->number) + " " + operation.name);
  }
  if (operation.records != nullptr) {
    operation.records->done = std::max(operation.records->done, operation.count);
  }
  stream->running = false;
  changed.notify_all();
  return true;
}

bool FakeDriver::State::finish(Lock& lock, CUevent_st* event, CUstream_st* stream,
                               std::uint64_t count, Patience patience) {
  while (event->done < count) {
    if (advance(lock, stream, patience) || event->done >= count) continue;
    if (patience == Patience::kTry) return false;
    check_failed("a record that can never run", __FILE__, __LINE__);
  }
  return true;
}

void FakeDriver::State::drain(Lock& lock, CUstream_st* stream) {
  while (advance(lock, stream)) {
  }
}

void FakeDriver::State::drain_all(Lock& lock, int device) {
  const std::set<CUstream_st*> all = streams;
  for (CUstream_st* stream : all)
    if (streams.contains(stream) && stream->device == device) drain(lock, stream);
}

void FakeDriver::State::add(Lock& lock, CUstream_st* stream, Operation operation) {
  if (stream->capture != nullptr) {
    // Events inside a graph are not played.
    MUSTER_CHECK(operation.waits_for == nullptr && operation.records == nullptr);
    MUSTER_CHECK(fake_capturing == stream);
    stream->capture->operations.push_back(std::move(operation));
    return;
  }
  stream->queue.push_back(std::move(operation));
  while (options.pace == Pace::kEager && advance(lock, stream, Patience::kTry)) {
  }
  if (options.pace != Pace::kRandom) return;
  CUstream_st* const drawn =
      *std::next(streams.begin(), static_cast<std::ptrdiff_t>(rng.below(streams.size())));
  for (std::uint64_t some = rng.below(4); some > 0; --some)
    advance(lock, drawn, Patience::kTry);
}

CuResult FakeDriver::State::failure(const char* function) const {
  const auto found = failures.find(function);
  return found == failures.end() ? kCuSuccess : found->second;
}

}  // namespace muster::runtime::cuda
