// SPDX-License-Identifier: Apache-2.0
//
// What we call of the CUDA driver (libcuda.so.1), as a table of function pointers: filled from the
// library where there is one, from a fake in tests. Names, arguments and meanings are those of the
// CUDA Driver API reference, version 12.0; declared here, since hosts that build this need no CUDA.
// Where a toolkit is found, a test compares every signature with cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

// The driver's own handle types.
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace muster::runtime::cuda {

using CuContext = CUctx_st*;
using CuModule = CUmod_st*;
using CuFunction = CUfunc_st*;
using CuStream = CUstream_st*;
using CuEvent = CUevent_st*;
using CuGraph = CUgraph_st*;
using CuGraphExec = CUgraphExec_st*;
using CuDevice = int;
using CuAddress = unsigned long long;     // NOLINT(google-runtime-int): as cuda.h has it
using CuGraphFlags = unsigned long long;  // NOLINT(google-runtime-int)
using CuResult = int;

struct CuUuid {
  char bytes[16];
};

// The results, attributes and flags that we tell apart.
inline constexpr CuResult kCuSuccess = 0;
inline constexpr CuResult kCuInvalidValue = 1;
inline constexpr CuResult kCuOutOfMemory = 2;
inline constexpr CuResult kCuNotInitialized = 3;
inline constexpr CuResult kCuNoDevice = 100;
inline constexpr CuResult kCuInvalidDevice = 101;
inline constexpr CuResult kCuInvalidImage = 200;
inline constexpr CuResult kCuInvalidContext = 201;
inline constexpr CuResult kCuNoBinaryForGpu = 209;
inline constexpr CuResult kCuUnsupportedPtx = 222;  // made by a newer compiler
inline constexpr CuResult kCuInvalidHandle = 400;
inline constexpr CuResult kCuIllegalState = 401;
inline constexpr CuResult kCuNotFound = 500;
inline constexpr CuResult kCuNotReady = 600;
inline constexpr CuResult kCuCaptureUnsupported = 900;  // not while a stream is captured
inline constexpr CuResult kCuCaptureInvalidated = 901;

inline constexpr int kCuAttributeMultiprocessors = 16;
inline constexpr int kCuAttributeCapabilityMajor = 75;
inline constexpr int kCuAttributeCapabilityMinor = 76;
inline constexpr int kCuAttributeSharedPerBlockOptin = 97;

inline constexpr int kCuFunctionMaxDynamicShared = 8;

inline constexpr unsigned kCuStreamNonBlocking = 1;
inline constexpr unsigned kCuEventDisableTiming = 2;
inline constexpr int kCuCaptureThreadLocal = 1;  // other threads may do what they like

// Shared memory that a launch may use without asking for more.
inline constexpr std::size_t kCuPlainShared = 48U << 10U;

// clang-format off
#define MUSTER_CU_DRIVER(F)                                                              \
  F(cuInit, unsigned)                                                                    \
  F(cuDriverGetVersion, int*)                                                            \
  F(cuGetErrorName, CuResult, const char**)                                              \
  F(cuGetErrorString, CuResult, const char**)                                            \
  F(cuDeviceGetCount, int*)                                                              \
  F(cuDeviceGet, CuDevice*, int)                                                         \
  F(cuDeviceGetName, char*, int, CuDevice)                                               \
  F(cuDeviceGetUuid, CuUuid*, CuDevice)                                                  \
  F(cuDeviceGetPCIBusId, char*, int, CuDevice)                                           \
  F(cuDeviceGetAttribute, int*, int, CuDevice)                                           \
  F(cuDeviceTotalMem, std::size_t*, CuDevice)                                            \
  F(cuDevicePrimaryCtxRetain, CuContext*, CuDevice)                                      \
  F(cuDevicePrimaryCtxRelease, CuDevice)                                                 \
  F(cuCtxSetCurrent, CuContext)                                                          \
  F(cuModuleLoadData, CuModule*, const void*)                                            \
  F(cuModuleUnload, CuModule)                                                            \
  F(cuModuleGetFunction, CuFunction*, CuModule, const char*)                             \
  F(cuFuncSetAttribute, CuFunction, int, int)                                            \
  F(cuMemGetInfo, std::size_t*, std::size_t*)                                            \
  F(cuMemAlloc, CuAddress*, std::size_t)                                                 \
  F(cuMemFree, CuAddress)                                                                \
  F(cuMemHostAlloc, void**, std::size_t, unsigned)                                       \
  F(cuMemFreeHost, void*)                                                                \
  F(cuMemcpyHtoDAsync, CuAddress, const void*, std::size_t, CuStream)                    \
  F(cuMemcpyDtoHAsync, void*, CuAddress, std::size_t, CuStream)                          \
  F(cuMemcpyDtoDAsync, CuAddress, CuAddress, std::size_t, CuStream)                      \
  F(cuMemsetD32Async, CuAddress, unsigned, std::size_t, CuStream)                        \
  F(cuStreamCreate, CuStream*, unsigned)                                                 \
  F(cuStreamDestroy, CuStream)                                                           \
  F(cuStreamQuery, CuStream)                                                             \
  F(cuStreamSynchronize, CuStream)                                                       \
  F(cuStreamWaitEvent, CuStream, CuEvent, unsigned)                                      \
  F(cuEventCreate, CuEvent*, unsigned)                                                   \
  F(cuEventDestroy, CuEvent)                                                             \
  F(cuEventRecord, CuEvent, CuStream)                                                    \
  F(cuEventQuery, CuEvent)                                                               \
  F(cuEventSynchronize, CuEvent)                                                         \
  F(cuEventElapsedTime, float*, CuEvent, CuEvent)                                        \
  F(cuStreamBeginCapture, CuStream, int)                                                 \
  F(cuStreamEndCapture, CuStream, CuGraph*)                                              \
  F(cuGraphInstantiateWithFlags, CuGraphExec*, CuGraph, CuGraphFlags)                    \
  F(cuGraphLaunch, CuGraphExec, CuStream)                                                \
  F(cuGraphExecDestroy, CuGraphExec)                                                     \
  F(cuGraphDestroy, CuGraph)                                                             \
  F(cuLaunchKernel, CuFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
    unsigned, CuStream, void**, void**)
// clang-format on

struct DriverApi {
#define MUSTER_CU_POINTER(name, ...) CuResult (*name)(__VA_ARGS__) = nullptr;
  MUSTER_CU_DRIVER(MUSTER_CU_POINTER)
#undef MUSTER_CU_POINTER
  std::string library;  // where it is from, for messages
};

// The oldest driver whose functions these are, as cuDriverGetVersion counts: 12.0.
inline constexpr int kCuOldestDriver = 12000;

// kNotFound: this host has no CUDA driver; kFailedPrecondition: one that is too old or lacks a
// function, with both versions and what to install. Does not call cuInit.
absl::StatusOr<DriverApi> load_driver();
// What this host's driver says it is, 13000 for CUDA 13.0; 0: there is none.
int installed_driver_version();

// "13000" as people write it: "13.0".
std::string cuda_version_text(int version);
// The oldest driver branch for a version of CUDA: 580 for 13.x, 525 for 12.x, 450 for 11.x; 0: not
// in the table.
int oldest_driver_for(int cuda);

// OK for kCuSuccess. Else kResourceExhausted where memory ran out, kInternal for the rest:
// "WHAT: CUDA_ERROR_…, what the driver says of it".
absl::Status cuda_status(const DriverApi& api, CuResult result, const std::string& what);

}  // namespace muster::runtime::cuda
