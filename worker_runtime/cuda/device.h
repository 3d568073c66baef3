// SPDX-License-Identifier: Apache-2.0
//
// One device of this process and what lives on it, owned. Device addresses are plain pointers that
// the host never follows.
//
// Everything that is queued (copies, kernels, events) is queued on a stream and runs later; errors
// of what was queued may show at any later call, as the driver reports them. Sizes are bytes.
//
// Ownership: what a Device made keeps it alive. Destroying a Stream, Event or memory waits until
// the device no longer uses it (the driver's own rule).
// Thread rule: several threads may use one Device; each calls use() once first. One thread at a
// time per Stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker_runtime/cuda/driver_api.h"
#include "worker_runtime/cuda/images.h"
#include "worker_runtime/cuda/kernels/exec.h"

namespace muster::runtime::cuda {

struct DeviceFacts {
  int ordinal = 0;  // among the devices that this process sees
  std::string name;
  std::string uuid;     // "GPU-…", as nvidia-smi prints it
  std::string pci_bus;  // "0000:1b:00.0"
  int capability_major = 0;
  int capability_minor = 0;
  int multiprocessors = 0;
  std::size_t shared_per_block = 0;  // at most, when asked for
  std::size_t memory = 0;            // in all
  int driver_version = 0;            // 12040 for CUDA 12.4
};

class Device;

// Memory of a device, or host memory that it can copy from and to while the host goes on (pinned).
class Memory {
 public:
  Memory() = default;
  ~Memory() { reset(); }
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }
  std::size_t size() const { return size_; }
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  friend class Device;
  void swap(Memory& other) noexcept;
  void reset();
  std::shared_ptr<Device> device_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  bool on_host_ = false;
};

class Event {
 public:
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  // Whether everything queued before the last record() has run. Of one never recorded: true.
  absl::StatusOr<bool> done() const;
  absl::Status wait() const;
  // From what `begin` was recorded after to what this was. REQUIRES: both are timed and done.
  absl::StatusOr<double> milliseconds_since(const Event& begin) const;

 private:
  friend class Device;
  friend class Stream;
  Event(std::shared_ptr<Device> device, CuEvent event)
      : device_(std::move(device)), event_(event) {}
  std::shared_ptr<Device> device_;
  CuEvent event_;
};

// What a stream ran once, to be run again as a whole: kernels and copies with the addresses and
// arguments that they were queued with.
class Graph {
 public:
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

 private:
  friend class Stream;
  Graph(std::shared_ptr<Device> device, CuGraphExec graph)
      : device_(std::move(device)), graph_(graph) {}
  std::shared_ptr<Device> device_;
  CuGraphExec graph_;
};

class Stream {
 public:
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Copies. Host memory that is not pinned makes them wait.
  absl::Status copy_to_device(void* to, const void* from, std::size_t size);
  absl::Status copy_to_host(void* to, const void* from, std::size_t size);
  absl::Status copy(void* to, const void* from, std::size_t size);  // on the device
  // `size` is a multiple of four.
  absl::Status zero(void* memory, std::size_t size);

  absl::Status record(const Event& event);
  // What is queued here later runs after what `event` was recorded after.
  absl::Status wait_for(const Event& event);
  absl::Status synchronize();

  // What this thread queues here does not run, but becomes a graph. Until end_capture() the thread
  // waits for nothing, asks for no event and allocates nothing; other threads may. Also after an
  // error: the stream is an ordinary one again.
  absl::Status begin_capture();
  absl::StatusOr<std::unique_ptr<Graph>> end_capture();
  absl::Status replay(const Graph& graph);

  // One of our kernels; `args` is copied.
  template <class Kernel>
  absl::Status launch(Grid grid, const typename Kernel::Args& args);

  CuStream handle() const { return stream_; }
  const std::shared_ptr<Device>& device() const { return device_; }

 private:
  friend class Device;
  Stream(std::shared_ptr<Device> device, CuStream stream)
      : device_(std::move(device)), stream_(stream) {}
  absl::Status launch_raw(const char* name, Grid grid, unsigned threads, std::size_t shared,
                          const void* args);
  std::shared_ptr<Device> device_;
  CuStream stream_;
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  // Initialises the driver, retains the device's primary context, makes it current on this thread
  // and loads the images. kNotFound: there is no such device; kFailedPrecondition: no images, or
  // none with code for it.
  static absl::StatusOr<std::shared_ptr<Device>> open(const DriverApi& api, int ordinal,
                                                      const std::vector<DeviceImage>& images);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceFacts& facts() const { return facts_; }
  const DriverApi& api() const { return api_; }
  // Makes it the calling thread's device.
  absl::Status use() const;

  absl::StatusOr<std::unique_ptr<Stream>> make_stream();
  absl::StatusOr<std::unique_ptr<Event>> make_event();
  // One that notes when it was reached, which costs the device a little.
  absl::StatusOr<std::unique_ptr<Event>> make_timed_event();
  absl::StatusOr<Memory> allocate(std::size_t size);
  absl::StatusOr<Memory> allocate_pinned(std::size_t size);
  // Free and all.
  absl::StatusOr<std::pair<std::size_t, std::size_t>> memory() const;

  // "cuMemAlloc of 1 MiB on device 0: …".
  absl::Status status(CuResult result, const std::string& what) const;

 private:
  friend class Stream;
  explicit Device(const DriverApi& api) : api_(api) {}
  absl::StatusOr<std::unique_ptr<Event>> make_event(unsigned flags);
  absl::Status read_facts(int ordinal);
  absl::Status load(const std::vector<DeviceImage>& images);
  std::string why_not_loaded(const DeviceImage& image) const;
  // Looked up once, with its shared memory allowed.
  absl::StatusOr<CuFunction> function(const char* name, std::size_t shared);

  DriverApi api_;
  CuDevice device_ = 0;
  CuContext context_ = nullptr;
  std::vector<CuModule> modules_;
  DeviceFacts facts_;
  std::mutex functions_mutex_;
  std::map<std::string, CuFunction> functions_;
};

// The name under which a kernel stands in the image; from kernels/list.h.
template <class Kernel>
struct KernelName;

template <class Kernel>
absl::Status Stream::launch(Grid grid, const typename Kernel::Args& args) {
  constexpr std::size_t shared =
      std::is_empty_v<typename Kernel::Shared> ? 0 : sizeof(typename Kernel::Shared);
  return launch_raw(KernelName<Kernel>::kName, grid, Kernel::kThreads, shared, &args);
}

}  // namespace muster::runtime::cuda
