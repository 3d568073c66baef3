// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/device_watch.h"

#include <condition_variable>
#include <mutex>
#include <signal.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>

#include "agent/core/device_memory.h"
#include "agent/shell/io_loop.h"
#include "agent/shell/nvml.h"

namespace muster::agent {
namespace {

constexpr Duration kLastCall = 1s;

// One device as the library knows it.
struct Handle {
  std::string name;
  NvmlDevice device = nullptr;
};

std::vector<std::int64_t> processes_on(const NvmlApi& nvml, NvmlDevice device) {
  std::vector<NvmlProcess> found(64);
  for (int tries = 0; tries < 3; ++tries) {
    auto count = static_cast<unsigned>(found.size());
    const NvmlResult result =
        nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &count, found.data());
    if (result == kNvmlInsufficientSize) {
      found.resize(count + 64);
      continue;
    }
    if (result != kNvmlSuccess) break;
    std::vector<std::int64_t> pids;
    for (unsigned i = 0; i < count && i < found.size(); ++i)
      pids.push_back(found[i].pid);
    return pids;
  }
  return {};
}

// The devices that workers see. An index is NVML's, in the order of the bus; CUDA's own order is
// another only where devices differ.
std::vector<Handle> devices_of(const NvmlApi& nvml, const std::optional<std::string>& mask) {
  unsigned count = 0;
  std::vector<Handle> handles;
  if (nvml.nvmlDeviceGetCount_v2(&count) != kNvmlSuccess) return handles;
  for (const std::string& entry : visible_devices(mask, count)) {
    Handle handle{"GPU " + entry, nullptr};
    const bool by_name = entry.find('-') != std::string::npos;
    const NvmlResult result = by_name
                                  ? nvml.nvmlDeviceGetHandleByUUID(entry.c_str(), &handle.device)
                                  : nvml.nvmlDeviceGetHandleByIndex_v2(
                                        static_cast<unsigned>(std::stoul(entry)), &handle.device);
    if (result == kNvmlSuccess) handles.push_back(std::move(handle));
  }
  return handles;
}

std::vector<DeviceUse> look(const NvmlApi& nvml, const std::vector<Handle>& handles) {
  std::vector<DeviceUse> uses;
  for (const Handle& handle : handles) {
    NvmlMemory memory;
    if (nvml.nvmlDeviceGetMemoryInfo(handle.device, &memory) != kNvmlSuccess) continue;
    uses.push_back({handle.name, memory.used, memory.total, processes_on(nvml, handle.device)});
  }
  return uses;
}

}  // namespace

bool DevicePlaces::has_driver() const {
  return ::access((root + "/nvidiactl").c_str(), F_OK) == 0;
}

struct DeviceWatch::Request : std::enable_shared_from_this<DeviceWatch::Request> {
  Request(boost::asio::io_context& context, DeviceMemory judge, Done call)
      : io(&context), memory(std::move(judge)), done(std::move(call)) {}

  std::mutex mutex;
  std::condition_variable changed;
  boost::asio::io_context* io;  // null: nobody waits any more
  bool ended = false;
  DeviceMemory memory;  // the thread's own
  const Instant since = IoLoop::now();
  const Done done;

  void tell(std::string holder, std::string trouble) {
    const std::lock_guard lock(mutex);
    if (io == nullptr) return;  // with the lock held: the loop cannot go away meanwhile
    boost::asio::post(
        *io, [self = shared_from_this(), holder = std::move(holder), trouble = std::move(trouble)] {
          if (self->is_awaited()) self->done(holder, trouble);
        });
  }
  bool is_awaited() {
    const std::lock_guard lock(mutex);
    return io != nullptr;
  }
  // False: nobody waits any more.
  bool pause() {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, DeviceMemory::kLookEvery, [this] { return io == nullptr; });
    return io != nullptr;
  }
  void end() {
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }

  void look_on(const NvmlApi& nvml, const std::optional<std::string>& mask) {
    const std::vector<Handle> handles = devices_of(nvml, mask);
    do {
      const DeviceMemory::Verdict verdict = memory.look(look(nvml, handles), IoLoop::now() - since);
      if (verdict.over) return tell(verdict.holder, "");
    } while (pause());
  }
  void run(const DevicePlaces& places) {
    const absl::StatusOr<NvmlApi> nvml = load_nvml(places.nvml);
    if (!nvml.ok()) return tell("", std::string(nvml.status().message()));
    const NvmlResult result = nvml->nvmlInit_v2();
    if (result != kNvmlSuccess) {
      return tell("", "nvmlInit: error " + std::to_string(result));
    }
    look_on(*nvml, places.mask);
    nvml->nvmlShutdown();
  }
};

DeviceWatch::DeviceWatch(boost::asio::io_context& io, DevicePlaces places)
    : io_(io), places_(std::move(places)) {}

DeviceWatch::~DeviceWatch() {
  forget(kLastCall);
}

void DeviceWatch::forget(Duration wait) {
  const std::shared_ptr<Request> request = std::exchange(request_, nullptr);
  if (!request) return;
  std::unique_lock lock(request->mutex);
  request->io = nullptr;
  request->changed.notify_all();
  request->changed.wait_for(lock, wait, [&] { return request->ended; });
}

void DeviceWatch::await(std::vector<std::int64_t> pids, Duration patience, Done done) {
  forget(Duration{0});
  request_ =
      std::make_shared<Request>(io_, DeviceMemory(std::move(pids), patience), std::move(done));
  // Signals are the io thread's.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([request = request_, places = places_] {
      request->run(places);
      request->end();
    }).detach();
  } catch (const std::system_error& error) {
    request_->tell("", std::string("no thread: ") + error.what());
    request_->ended = true;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace muster::agent
