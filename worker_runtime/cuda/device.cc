// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/device.h"

#include <array>
#include <cstdio>

#include "proto/base/check.h"

namespace muster::runtime::cuda {
namespace {

std::string in_bytes(std::size_t size) {
  if (size < 10240) return std::to_string(size) + " bytes";
  if (size < (std::size_t{10} << 20U)) return std::to_string(size >> 10U) + " KiB";
  return std::to_string(size >> 20U) + " MiB";
}

CuAddress address(const void* memory) {
  return static_cast<CuAddress>(reinterpret_cast<std::uintptr_t>(memory));
}

// "GPU-01020304-0506-…".
std::string uuid_text(const CuUuid& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::array<char, 3> two{};
    std::snprintf(two.data(), two.size(), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += two.data();
  }
  return text;
}

}  // namespace

// ---------------------------------------------------------------- Device

absl::Status Device::status(CuResult result, const std::string& what) const {
  return cuda_status(api_, result, what + " on device " + std::to_string(facts_.ordinal));
}

absl::StatusOr<std::shared_ptr<Device>> Device::open(const DriverApi& api, int ordinal,
                                                     const std::vector<DeviceImage>& images) {
  if (absl::Status ready = cuda_status(api, api.cuInit(0), "cuInit"); !ready.ok()) {
    return absl::NotFoundError(ready.message());
  }
  int count = 0;
  absl::Status counted = cuda_status(api, api.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (!counted.ok()) return counted;
  if (ordinal < 0 || ordinal >= count) {
    return absl::NotFoundError("there is no device " + std::to_string(ordinal) +
                               "; this process sees " + std::to_string(count) +
                               " (CUDA_VISIBLE_DEVICES)");
  }
  std::shared_ptr<Device> device(new Device(api));
  if (absl::Status read = device->read_facts(ordinal); !read.ok()) return read;
  absl::Status retained = device->status(
      api.cuDevicePrimaryCtxRetain(&device->context_, device->device_), "cuDevicePrimaryCtxRetain");
  if (!retained.ok()) return retained;
  if (absl::Status used = device->use(); !used.ok()) return used;
  if (absl::Status loaded = device->load(images); !loaded.ok()) return loaded;
  return device;
}

absl::Status Device::read_facts(int ordinal) {
  facts_.ordinal = ordinal;
  std::array<char, 256> name{};
  std::array<char, 32> bus{};
  CuUuid uuid{};
  CuResult first = api_.cuDeviceGet(&device_, ordinal);
  const auto ask = [&first](CuResult result) {
    if (first == kCuSuccess) first = result;
  };
  if (first == kCuSuccess) {
    ask(api_.cuDeviceGetName(name.data(), static_cast<int>(name.size()), device_));
    ask(api_.cuDeviceGetUuid(&uuid, device_));
    ask(api_.cuDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device_));
    ask(api_.cuDeviceGetAttribute(&facts_.capability_major, kCuAttributeCapabilityMajor, device_));
    ask(api_.cuDeviceGetAttribute(&facts_.capability_minor, kCuAttributeCapabilityMinor, device_));
    ask(api_.cuDeviceGetAttribute(&facts_.multiprocessors, kCuAttributeMultiprocessors, device_));
    int shared = 0;
    ask(api_.cuDeviceGetAttribute(&shared, kCuAttributeSharedPerBlockOptin, device_));
    facts_.shared_per_block = static_cast<std::size_t>(shared);
    ask(api_.cuDeviceTotalMem(&facts_.memory, device_));
    ask(api_.cuDriverGetVersion(&facts_.driver_version));
  }
  facts_.name = name.data();
  facts_.pci_bus = bus.data();
  facts_.uuid = uuid_text(uuid);
  return status(first, "what it is");
}

// A driver runs what compilers of its own major version of CUDA made, and older ones.
std::string Device::why_not_loaded(const DeviceImage& image) const {
  const int driver = facts_.driver_version;
  if (image.cuda / 1000 > driver / 1000) {
    const int least = oldest_driver_for(image.cuda);
    return "the driver of " + facts_.name + " is for CUDA " + cuda_version_text(driver) +
           ", and this program's device code was made by CUDA " + cuda_version_text(image.cuda) +
           ": install driver " + (least != 0 ? std::to_string(least) + " or newer" : "for it") +
           ", or a build made with CUDA " + std::to_string(driver / 1000) + ".x";
  }
  return facts_.name + " has compute capability " + std::to_string(facts_.capability_major) + "." +
         std::to_string(facts_.capability_minor) + "; this program has " + code_text(image.fatbin);
}

absl::Status Device::load(const std::vector<DeviceImage>& images) {
  if (images.empty()) {
    return absl::FailedPreconditionError(
        "this program has no device code: no nvcc was found where it was built");
  }
  for (const DeviceImage& image : images) {
    CuModule module = nullptr;
    const CuResult result = api_.cuModuleLoadData(&module, image.fatbin.data());
    if (result == kCuNoBinaryForGpu || result == kCuInvalidImage || result == kCuUnsupportedPtx) {
      return absl::FailedPreconditionError(why_not_loaded(image));
    }
    absl::Status loaded = status(result, "device code " + image.name);
    if (!loaded.ok()) return loaded;
    modules_.push_back(module);
  }
  return absl::OkStatus();
}

Device::~Device() {
  if (context_ == nullptr) return;
  if (use().ok()) {
    for (const CuModule module : modules_)
      api_.cuModuleUnload(module);
  }
  api_.cuDevicePrimaryCtxRelease(device_);
}

absl::Status Device::use() const {
  return status(api_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
}

absl::StatusOr<std::unique_ptr<Stream>> Device::make_stream() {
  CuStream stream = nullptr;
  absl::Status made = status(api_.cuStreamCreate(&stream, kCuStreamNonBlocking), "cuStreamCreate");
  if (!made.ok()) return made;
  return std::unique_ptr<Stream>(new Stream(shared_from_this(), stream));
}

absl::StatusOr<std::unique_ptr<Event>> Device::make_event() {
  return make_event(kCuEventDisableTiming);
}

absl::StatusOr<std::unique_ptr<Event>> Device::make_timed_event() {
  return make_event(0);
}

absl::StatusOr<std::unique_ptr<Event>> Device::make_event(unsigned flags) {
  CuEvent event = nullptr;
  absl::Status made = status(api_.cuEventCreate(&event, flags), "cuEventCreate");
  if (!made.ok()) return made;
  return std::unique_ptr<Event>(new Event(shared_from_this(), event));
}

absl::StatusOr<Memory> Device::allocate(std::size_t size) {
  CuAddress at = 0;
  absl::Status made = status(api_.cuMemAlloc(&at, size), "cuMemAlloc of " + in_bytes(size));
  if (!made.ok()) return made;
  Memory memory;
  memory.device_ = shared_from_this();
  memory.data_ = reinterpret_cast<void*>(static_cast<std::uintptr_t>(at));
  memory.size_ = size;
  return memory;
}

absl::StatusOr<Memory> Device::allocate_pinned(std::size_t size) {
  Memory memory;
  absl::Status made =
      status(api_.cuMemHostAlloc(&memory.data_, size, 0), "cuMemHostAlloc of " + in_bytes(size));
  if (!made.ok()) {
    memory.data_ = nullptr;
    return made;
  }
  memory.device_ = shared_from_this();
  memory.size_ = size;
  memory.on_host_ = true;
  return memory;
}

absl::StatusOr<std::pair<std::size_t, std::size_t>> Device::memory() const {
  std::size_t free = 0;
  std::size_t all = 0;
  absl::Status asked = status(api_.cuMemGetInfo(&free, &all), "cuMemGetInfo");
  if (!asked.ok()) return asked;
  return std::pair{free, all};
}

absl::StatusOr<CuFunction> Device::function(const char* name, std::size_t shared) {
  const std::lock_guard lock(functions_mutex_);
  const auto found = functions_.find(name);
  if (found != functions_.end()) return found->second;
  if (shared > facts_.shared_per_block) {
    return absl::FailedPreconditionError(std::string(name) + " needs " + in_bytes(shared) +
                                         " of shared memory a block; " + facts_.name + " has " +
                                         in_bytes(facts_.shared_per_block));
  }
  CuFunction function = nullptr;
  CuResult found_in = kCuNotFound;
  for (std::size_t i = 0; i < modules_.size() && found_in == kCuNotFound; ++i)
    found_in = api_.cuModuleGetFunction(&function, modules_[i], name);
  absl::Status got = status(found_in, name);
  if (got.ok() && shared > kCuPlainShared) {
    got = status(
        api_.cuFuncSetAttribute(function, kCuFunctionMaxDynamicShared, static_cast<int>(shared)),
        name);
  }
  if (!got.ok()) return got;
  functions_[name] = function;
  return function;
}

// ---------------------------------------------------------------- Memory

void Memory::swap(Memory& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(on_host_, other.on_host_);
}

void Memory::reset() {
  if (data_ == nullptr) return;
  const DriverApi& api = device_->api();
  if (device_->use().ok()) on_host_ ? api.cuMemFreeHost(data_) : api.cuMemFree(address(data_));
  data_ = nullptr;
  device_.reset();
}

// ---------------------------------------------------------------- Event

Event::~Event() {
  if (device_->use().ok()) device_->api().cuEventDestroy(event_);
}

absl::StatusOr<bool> Event::done() const {
  const CuResult result = device_->api().cuEventQuery(event_);
  if (result == kCuNotReady) return false;
  absl::Status asked = device_->status(result, "cuEventQuery");
  if (!asked.ok()) return asked;
  return true;
}

absl::Status Event::wait() const {
  return device_->status(device_->api().cuEventSynchronize(event_), "cuEventSynchronize");
}

absl::StatusOr<double> Event::milliseconds_since(const Event& begin) const {
  float elapsed = 0;
  const CuResult result = device_->api().cuEventElapsedTime(&elapsed, begin.event_, event_);
  absl::Status asked = device_->status(result, "cuEventElapsedTime");
  if (!asked.ok()) return asked;
  return static_cast<double>(elapsed);
}

// ---------------------------------------------------------------- Graph

Graph::~Graph() {
  if (device_->use().ok()) device_->api().cuGraphExecDestroy(graph_);
}

// ---------------------------------------------------------------- Stream

Stream::~Stream() {
  if (device_->use().ok()) device_->api().cuStreamDestroy(stream_);
}

absl::Status Stream::copy_to_device(void* to, const void* from, std::size_t size) {
  if (size == 0) return absl::OkStatus();
  return device_->status(device_->api().cuMemcpyHtoDAsync(address(to), from, size, stream_),
                         "copy of " + in_bytes(size) + " to memory");
}

absl::Status Stream::copy_to_host(void* to, const void* from, std::size_t size) {
  if (size == 0) return absl::OkStatus();
  return device_->status(device_->api().cuMemcpyDtoHAsync(to, address(from), size, stream_),
                         "copy of " + in_bytes(size) + " from memory");
}

absl::Status Stream::copy(void* to, const void* from, std::size_t size) {
  if (size == 0) return absl::OkStatus();
  return device_->status(
      device_->api().cuMemcpyDtoDAsync(address(to), address(from), size, stream_),
      "copy of " + in_bytes(size));
}

absl::Status Stream::zero(void* memory, std::size_t size) {
  MUSTER_CHECK(size % 4 == 0);
  if (size == 0) return absl::OkStatus();
  return device_->status(device_->api().cuMemsetD32Async(address(memory), 0, size / 4, stream_),
                         "clearing " + in_bytes(size));
}

absl::Status Stream::record(const Event& event) {
  return device_->status(device_->api().cuEventRecord(event.event_, stream_), "cuEventRecord");
}

absl::Status Stream::wait_for(const Event& event) {
  return device_->status(device_->api().cuStreamWaitEvent(stream_, event.event_, 0),
                         "cuStreamWaitEvent");
}

absl::Status Stream::synchronize() {
  return device_->status(device_->api().cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

absl::Status Stream::begin_capture() {
  return device_->status(device_->api().cuStreamBeginCapture(stream_, kCuCaptureThreadLocal),
                         "cuStreamBeginCapture");
}

absl::StatusOr<std::unique_ptr<Graph>> Stream::end_capture() {
  const DriverApi& api = device_->api();
  CuGraph graph = nullptr;
  absl::Status ended =
      device_->status(api.cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
  if (!ended.ok()) return ended;
  CuGraphExec exec = nullptr;
  const absl::Status made = device_->status(api.cuGraphInstantiateWithFlags(&exec, graph, 0),
                                            "cuGraphInstantiateWithFlags");
  api.cuGraphDestroy(graph);
  if (!made.ok()) return made;
  return std::unique_ptr<Graph>(new Graph(device_, exec));
}

absl::Status Stream::replay(const Graph& graph) {
  return device_->status(device_->api().cuGraphLaunch(graph.graph_, stream_), "cuGraphLaunch");
}

absl::Status Stream::launch_raw(const char* name, Grid grid, unsigned threads, std::size_t shared,
                                const void* args) {
  if (grid.x == 0 || grid.y == 0) return absl::OkStatus();
  const absl::StatusOr<CuFunction> function = device_->function(name, shared);
  if (!function.ok()) return function.status();
  void* parameters[] = {const_cast<void*>(args)};
  return device_->status(
      device_->api().cuLaunchKernel(*function, grid.x, grid.y, 1, threads, 1, 1,
                                    static_cast<unsigned>(shared), stream_, parameters, nullptr),
      name);
}

}  // namespace muster::runtime::cuda
