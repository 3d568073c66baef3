// SPDX-License-Identifier: Apache-2.0
//
// Blocks and warps as a device runs them; see exec.h.
#pragma once

#include "worker_runtime/cuda/kernels/exec.h"
#include "worker_runtime/cuda/kernels/mma.h"

namespace muster::runtime::cuda {

template <class T>
struct DevicePerThread {
  T value{};
  __device__ __forceinline__ T& operator[](Thread) { return value; }
};

class DeviceWarp {
 public:
  __device__ __forceinline__ unsigned index() const { return threadIdx.x / kWarp; }

  template <class F>
  __device__ __forceinline__ void each(F f) {
    f(Thread{threadIdx.x});
    __syncwarp();
  }

  template <unsigned kLanes = kWarp, class F>
  __device__ __forceinline__ void sum(F value_of) {
    float& value = value_of(Thread{threadIdx.x});
    MUSTER_UNROLL
    for (unsigned step = kLanes / 2; step > 0; step /= 2)
      value = value + __shfl_xor_sync(0xffffffffU, value, step);
  }

  template <unsigned kLanes = kWarp, class F>
  __device__ __forceinline__ void max(F value_of) {
    float& value = value_of(Thread{threadIdx.x});
    MUSTER_UNROLL
    for (unsigned step = kLanes / 2; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(0xffffffffU, value, step);
      value = other > value ? other : value;
    }
  }

  template <class S, class F>
  __device__ __forceinline__ void mma(F operands_of) {
    mma_device<S>(operands_of(Thread{threadIdx.x}));
  }

  template <bool kTransposed, class F>
  __device__ __forceinline__ void load_matrices(F rows_of) {
    load_matrices_device<kTransposed>(rows_of(Thread{threadIdx.x}));
  }
};

class DeviceBlock {
 public:
  __device__ __forceinline__ unsigned x() const { return blockIdx.x; }
  __device__ __forceinline__ unsigned y() const { return blockIdx.y; }

  template <class F>
  __device__ __forceinline__ void each(F f) {
    f(Thread{threadIdx.x});
    __syncthreads();
  }

  template <unsigned kPending, class F>
  __device__ __forceinline__ void copies(F f) {
    f(Thread{threadIdx.x});
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
    __syncthreads();
  }
  // Past the first level of cache: what is copied here is read once a block.
  template <class S>
  __device__ __forceinline__ void copy_pack(S* to, const S* from, bool exists) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(exists ? 16 : 0)
                 : "memory");
  }
  __device__ __forceinline__ void copy_word(float* to, const float* from, bool exists) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(exists ? 4 : 0)
                 : "memory");
  }

  template <class F>
  __device__ __forceinline__ void warps(F f) {
    DeviceWarp warp;
    f(warp);
    __syncthreads();
  }

  template <class T>
  __device__ __forceinline__ T& shared() {
    extern __shared__ __align__(16) unsigned char memory[];
    return *reinterpret_cast<T*>(memory);
  }

  template <class T>
  __device__ __forceinline__ DevicePerThread<T> per_thread() {
    return {};
  }
};

}  // namespace muster::runtime::cuda

// The entry that a driver finds by name.
#define MUSTER_KERNEL_ENTRY(name, ...)                                     \
  extern "C" __global__ void __launch_bounds__(__VA_ARGS__::kThreads)      \
      name(const __grid_constant__ typename __VA_ARGS__::Args arguments) { \
    muster::runtime::cuda::DeviceBlock block;                              \
    __VA_ARGS__::run(block, arguments);                                    \
  }
