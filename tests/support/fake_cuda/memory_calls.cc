// SPDX-License-Identifier: Apache-2.0
//
// Memory and copies.
#include "tests/support/fake_cuda/state.h"

namespace muster::runtime::cuda {
namespace {

using State = FakeDriver::State;

CuResult memory_info(std::size_t* free, std::size_t* all) {
  return in_context("cuMemGetInfo", [&](State& state, Lock&) {
    *all = state.options.memory;
    *free = *all - state.used(fake_context->device);
    return kCuSuccess;
  });
}
CuResult memory_allocate(CuAddress* at, std::size_t size) {
  return in_context("cuMemAlloc", [&](State& state, Lock&) {
    if (size == 0) return kCuInvalidValue;
    const int device = fake_context->device;
    if (size > state.options.memory - state.used(device)) return kCuOutOfMemory;
    *at = static_cast<CuAddress>(reinterpret_cast<std::uintptr_t>(state.allocate(size, device)));
    return kCuSuccess;
  });
}
CuResult memory_free(CuAddress at) {
  return in_context("cuMemFree", [&](State& state, Lock& lock) {
    state.waits.emplace_back("cuMemFree");
    state.drain_all(lock, fake_context->device);  // as a real one waits
    return state.release(pointer(at), false) ? kCuSuccess : kCuInvalidValue;
  });
}
CuResult host_allocate(void** at, std::size_t size, unsigned) {
  return in_context("cuMemHostAlloc", [&](State& state, Lock&) {
    if (size == 0) return kCuInvalidValue;
    *at = state.allocate(size, -1);
    return kCuSuccess;
  });
}
CuResult host_free(void* at) {
  return in_context("cuMemFreeHost", [&](State& state, Lock& lock) {
    state.waits.emplace_back("cuMemFreeHost");
    state.drain_all(lock, fake_context->device);
    return state.release(at, true) ? kCuSuccess : kCuInvalidValue;
  });
}

CuResult to_device(CuAddress to, const void* from, std::size_t size, CuStream stream) {
  return on_stream("cuMemcpyHtoDAsync", stream, [&](State& state, Lock& lock) {
    if (!state.on_device(pointer(to), size)) return kCuInvalidValue;
    if (stream->capture != nullptr && !state.pinned(from, size)) return refuse_captured();
    Operation operation;
    operation.name = "to_device " + std::to_string(size);
    if (state.pinned(from, size)) {
      operation.run = [=] { std::memcpy(pointer(to), from, size); };
    } else {
      state.waits.emplace_back("cuMemcpyHtoDAsync");
      const auto* first = static_cast<const std::byte*>(from);
      std::vector<std::byte> staged(first, first + size);
      operation.run = [to, staged = std::move(staged)] {
        std::memcpy(pointer(to), staged.data(), staged.size());
      };
    }
    state.add(lock, stream, std::move(operation));
    return kCuSuccess;
  });
}
CuResult to_host(void* to, CuAddress from, std::size_t size, CuStream stream) {
  return on_stream("cuMemcpyDtoHAsync", stream, [&](State& state, Lock& lock) {
    if (!state.on_device(pointer(from), size)) return kCuInvalidValue;
    if (stream->capture != nullptr && !state.pinned(to, size)) return refuse_captured();
    Operation operation;
    operation.name = "to_host " + std::to_string(size);
    operation.run = [=] { std::memcpy(to, pointer(from), size); };
    const bool waits = !state.pinned(to, size);
    state.add(lock, stream, std::move(operation));
    if (waits) {
      state.waits.emplace_back("cuMemcpyDtoHAsync");
      state.drain(lock, stream);
    }
    return kCuSuccess;
  });
}
CuResult on_one_device(CuAddress to, CuAddress from, std::size_t size, CuStream stream) {
  return on_stream("cuMemcpyDtoDAsync", stream, [&](State& state, Lock& lock) {
    if (!state.on_device(pointer(to), size) || !state.on_device(pointer(from), size)) {
      return kCuInvalidValue;
    }
    Operation operation;
    operation.name = "copy " + std::to_string(size);
    operation.run = [=] { std::memmove(pointer(to), pointer(from), size); };
    state.add(lock, stream, std::move(operation));
    return kCuSuccess;
  });
}
CuResult set_words(CuAddress at, unsigned value, std::size_t count, CuStream stream) {
  return on_stream("cuMemsetD32Async", stream, [&](State& state, Lock& lock) {
    if (at % 4 != 0 || !state.on_device(pointer(at), count * 4)) return kCuInvalidValue;
    Operation operation;
    operation.name = "set " + std::to_string(count * 4);
    operation.run = [=] {
      for (std::size_t i = 0; i < count; ++i)
        std::memcpy(static_cast<std::byte*>(pointer(at)) + 4 * i, &value, 4);
    };
    state.add(lock, stream, std::move(operation));
    return kCuSuccess;
  });
}

}  // namespace

void add_memory_calls(DriverApi& api) {
  api.cuMemGetInfo = memory_info;
  api.cuMemAlloc = memory_allocate;
  api.cuMemFree = memory_free;
  api.cuMemHostAlloc = host_allocate;
  api.cuMemFreeHost = host_free;
  api.cuMemcpyHtoDAsync = to_device;
  api.cuMemcpyDtoHAsync = to_host;
  api.cuMemcpyDtoDAsync = on_one_device;
  api.cuMemsetD32Async = set_words;
}

}  // namespace muster::runtime::cuda
