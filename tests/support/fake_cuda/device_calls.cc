// SPDX-License-Identifier: Apache-2.0
//
// Initialisation, errors, devices and contexts.
#include <cstdio>

#include "tests/support/fake_cuda/state.h"

namespace muster::runtime::cuda {
namespace {

using State = FakeDriver::State;

CuResult init(unsigned) {
  const Lock lock(fake_driver->mutex);
  if (const CuResult failed = fake_driver->failure("cuInit"); failed != kCuSuccess) return failed;
  fake_driver->initialised = true;
  return fake_driver->options.devices > 0 ? kCuSuccess : kCuNoDevice;
}
CuResult driver_version(int* version) {
  *version = fake_driver->options.driver_version;
  return kCuSuccess;
}
CuResult error_name(CuResult result, const char** name) {
  static const std::map<CuResult, const char*> kNames{
      {kCuInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kCuOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kCuNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
      {kCuNoDevice, "CUDA_ERROR_NO_DEVICE"},
      {kCuInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
      {kCuInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
      {kCuInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kCuNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {kCuInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
      {kCuIllegalState, "CUDA_ERROR_ILLEGAL_STATE"},
      {kCuCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {kCuCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
      {kCuNotFound, "CUDA_ERROR_NOT_FOUND"},
      {kCuNotReady, "CUDA_ERROR_NOT_READY"}};
  const auto found = kNames.find(result);
  *name = found == kNames.end() ? nullptr : found->second;
  return found == kNames.end() ? kCuInvalidValue : kCuSuccess;
}
CuResult error_words(CuResult result, const char** words) {
  *words = result == kCuOutOfMemory ? "out of memory" : "";
  return kCuSuccess;
}

CuResult device_count(int* count) {
  return on_device("cuDeviceGetCount", 0, [&](State& state) {
    *count = state.options.devices;
    return kCuSuccess;
  });
}
CuResult device_get(CuDevice* device, int ordinal) {
  return on_device("cuDeviceGet", ordinal, [&](State&) {
    *device = ordinal;
    return kCuSuccess;
  });
}
CuResult device_name(char* name, int size, CuDevice device) {
  return on_device("cuDeviceGetName", device, [&](State&) {
    std::snprintf(name, static_cast<std::size_t>(size), "Fake GPU");
    return kCuSuccess;
  });
}
CuResult device_uuid(CuUuid* uuid, CuDevice device) {
  return on_device("cuDeviceGetUuid", device, [&](State&) {
    for (std::size_t i = 0; i < sizeof(uuid->bytes); ++i)
      uuid->bytes[i] = static_cast<char>(i);
    uuid->bytes[15] = static_cast<char>(device);
    return kCuSuccess;
  });
}
CuResult device_bus(char* bus, int size, CuDevice device) {
  return on_device("cuDeviceGetPCIBusId", device, [&](State&) {
    std::snprintf(bus, static_cast<std::size_t>(size), "0000:%02x:00.0", device + 1);
    return kCuSuccess;
  });
}
CuResult device_attribute(int* value, int attribute, CuDevice device) {
  return on_device("cuDeviceGetAttribute", device, [&](State& state) {
    switch (attribute) {
      case kCuAttributeCapabilityMajor: *value = state.options.capability / 10; break;
      case kCuAttributeCapabilityMinor: *value = state.options.capability % 10; break;
      case kCuAttributeMultiprocessors: *value = 4; break;
      case kCuAttributeSharedPerBlockOptin: *value = 227 << 10; break;
      default: return kCuInvalidValue;
    }
    return kCuSuccess;
  });
}
CuResult device_memory(std::size_t* bytes, CuDevice device) {
  return on_device("cuDeviceTotalMem", device, [&](State& state) {
    *bytes = state.options.memory;
    return kCuSuccess;
  });
}
CuResult context_retain(CuContext* context, CuDevice device) {
  return on_device("cuDevicePrimaryCtxRetain", device, [&](State& state) {
    *context = &state.contexts[static_cast<std::size_t>(device)];
    return kCuSuccess;
  });
}
CuResult context_release(CuDevice device) {
  return on_device("cuDevicePrimaryCtxRelease", device, [](State&) { return kCuSuccess; });
}
CuResult context_use(CuContext context) {
  const Lock lock(fake_driver->mutex);
  if (const CuResult failed = fake_driver->failure("cuCtxSetCurrent"); failed != 0) return failed;
  fake_context = context;
  return kCuSuccess;
}

}  // namespace

void add_device_calls(DriverApi& api) {
  api.cuInit = init;
  api.cuDriverGetVersion = driver_version;
  api.cuGetErrorName = error_name;
  api.cuGetErrorString = error_words;
  api.cuDeviceGetCount = device_count;
  api.cuDeviceGet = device_get;
  api.cuDeviceGetName = device_name;
  api.cuDeviceGetUuid = device_uuid;
  api.cuDeviceGetPCIBusId = device_bus;
  api.cuDeviceGetAttribute = device_attribute;
  api.cuDeviceTotalMem = device_memory;
  api.cuDevicePrimaryCtxRetain = context_retain;
  api.cuDevicePrimaryCtxRelease = context_release;
  api.cuCtxSetCurrent = context_use;
}

}  // namespace muster::runtime::cuda
