// SPDX-License-Identifier: Apache-2.0
//
// A libnvidia-ml.so.1 without a GPU. What it says stands in the file that FAKE_NVML_STATE names,
// read anew at each call: a line a device, "UUID TOTAL_MIB USED_MIB [PID…]". What was asked is
// appended to that name + ".calls": 'i' init, 'm' memory, 's' shutdown. Written with C's library
// alone, as the real one.
#include "agent/shell/nvml.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

struct nvmlDevice_st {
  unsigned index;
};

namespace {

using muster::agent::kNvmlInsufficientSize;
using muster::agent::kNvmlSuccess;
using muster::agent::NvmlDevice;
using muster::agent::NvmlMemory;
using muster::agent::NvmlProcess;
using muster::agent::NvmlResult;

constexpr NvmlResult kInvalidArgument = 2;
constexpr NvmlResult kNotFound = 6;
constexpr NvmlResult kDriverNotLoaded = 9;
constexpr unsigned kDevices = 16;
constexpr unsigned kProcesses = 128;

std::array<nvmlDevice_st, kDevices> handles;

struct Device {
  std::array<char, 96> uuid;
  unsigned long long total;
  unsigned long long used;
  unsigned processes;
  std::array<unsigned, kProcesses> pids;
};

const char* state_path() {
  return std::getenv("FAKE_NVML_STATE");  // NOLINT(concurrency-mt-unsafe): tests set it once
}

void note(char call) {
  if (state_path() == nullptr) return;
  std::array<char, 4096> path{};
  std::snprintf(path.data(), path.size(), "%s.calls", state_path());
  if (FILE* file = std::fopen(path.data(), "ae")) {
    std::fputc(call, file);
    std::fclose(file);
  }
}

void parse(char* line, Device& device) {
  char* rest = nullptr;
  const char* uuid = strtok_r(line, " \n", &rest);
  std::snprintf(device.uuid.data(), device.uuid.size(), "%s", uuid != nullptr ? uuid : "");
  std::array<unsigned long long, 2> mib{};
  for (unsigned long long& number : mib) {
    const char* word = strtok_r(nullptr, " \n", &rest);
    number = word != nullptr ? std::strtoull(word, nullptr, 10) : 0;
  }
  device.total = mib[0] << 20U;
  device.used = mib[1] << 20U;
  device.processes = 0;
  while (const char* word = strtok_r(nullptr, " \n", &rest)) {
    if (device.processes == kProcesses) return;
    device.pids[device.processes++] = static_cast<unsigned>(std::strtoul(word, nullptr, 10));
  }
}

// Calls `use(index, device)` for each device until it returns true. False: none did, or no state.
template <typename Use>
bool find(Use use) {
  if (state_path() == nullptr) return false;
  FILE* file = std::fopen(state_path(), "re");
  if (file == nullptr) return false;
  std::array<char, 4096> line{};
  bool found = false;
  Device device{};
  for (unsigned i = 0; !found && i < kDevices && std::fgets(line.data(), line.size(), file); ++i) {
    parse(line.data(), device);
    found = use(i, device);
  }
  std::fclose(file);
  return found;
}

}  // namespace

extern "C" {

NvmlResult nvmlInit_v2() {
  note('i');
  FILE* file = state_path() != nullptr ? std::fopen(state_path(), "re") : nullptr;
  if (file == nullptr) return kDriverNotLoaded;
  std::fclose(file);
  return kNvmlSuccess;
}

NvmlResult nvmlShutdown() {
  note('s');
  return kNvmlSuccess;
}

NvmlResult nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 0;
  find([&](unsigned index, const Device& /*device*/) {
    *count = index + 1;
    return false;
  });
  return kNvmlSuccess;
}

NvmlResult nvmlDeviceGetHandleByIndex_v2(unsigned index, NvmlDevice* device) {
  if (index >= kDevices) return kInvalidArgument;
  handles[index].index = index;
  *device = &handles[index];
  return kNvmlSuccess;
}

NvmlResult nvmlDeviceGetHandleByUUID(const char* uuid, NvmlDevice* device) {
  const bool found = find([&](unsigned index, const Device& each) {
    return std::strcmp(each.uuid.data(), uuid) == 0 &&
           nvmlDeviceGetHandleByIndex_v2(index, device) == kNvmlSuccess;
  });
  return found ? kNvmlSuccess : kNotFound;
}

NvmlResult nvmlDeviceGetMemoryInfo(NvmlDevice device, NvmlMemory* memory) {
  note('m');
  const bool found = find([&](unsigned index, const Device& each) {
    if (index != device->index) return false;
    *memory = {each.total, each.total - each.used, each.used};
    return true;
  });
  return found ? kNvmlSuccess : kNotFound;
}

NvmlResult nvmlDeviceGetComputeRunningProcesses_v3(NvmlDevice device, unsigned* count,
                                                   NvmlProcess* processes) {
  NvmlResult result = kNotFound;
  const unsigned room = *count;
  *count = 0;
  find([&](unsigned index, const Device& each) {
    if (index != device->index) return false;
    *count = each.processes;
    result = each.processes > room ? kNvmlInsufficientSize : kNvmlSuccess;
    for (unsigned i = 0; result == kNvmlSuccess && i < each.processes; ++i)
      processes[i] = {each.pids[i], 0, 0, 0};
    return true;
  });
  return result;
}
}
