// SPDX-License-Identifier: Apache-2.0
//
// What we call of NCCL (libnccl.so.2), as a table of function pointers; names and meanings are
// those of the NCCL user guide. Declared here, since hosts that build this need no CUDA; where a
// toolkit is found, a test compares signatures and numbers with nccl.h.
//
// Communicators are non-blocking: a call may answer kNcclInProgress, and the communicator takes no
// other call until ncclCommGetAsyncError says how that one ended.
#pragma once

#include <cstddef>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <climits>

#include "worker_runtime/cuda/driver_api.h"

struct ncclComm;

namespace muster::runtime::cuda {

using NcclResult = int;
using NcclComm = ncclComm*;

// Made by one rank, used by all to find each other; good for one communicator.
struct NcclId {
  char bytes[128];
};

inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclCudaError = 1;
inline constexpr NcclResult kNcclSystemError = 2;
inline constexpr NcclResult kNcclInternalError = 3;
inline constexpr NcclResult kNcclInvalidArgument = 4;
inline constexpr NcclResult kNcclInvalidUsage = 5;
inline constexpr NcclResult kNcclRemoteError = 6;
inline constexpr NcclResult kNcclInProgress = 7;

inline constexpr int kNcclU8 = 1;
inline constexpr int kNcclU64 = 5;
inline constexpr int kNcclF16 = 6;
inline constexpr int kNcclF32 = 7;
inline constexpr int kNcclF64 = 8;
inline constexpr int kNcclBf16 = 9;
inline constexpr int kNcclSum = 0;

// The layout of 2.28; older libraries read the part that they know, by `size` and `version`.
// INT_MIN and nullptr leave a field to NCCL.
struct NcclConfig {
  std::size_t size = 0;
  unsigned magic = 0;
  unsigned version = 0;
  int blocking = INT_MIN;
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
  const char* comm_name = nullptr;
  int collnet_enable = INT_MIN;
  int cta_policy = INT_MIN;
  int shrink_share = INT_MIN;
  int nvls_ctas = INT_MIN;
  int channels_per_net_peer = INT_MIN;
  int nvlink_centric_sched = INT_MIN;
};

inline constexpr unsigned kNcclConfigMagic = 0xcafebeef;
// As ncclGetVersion counts, from 2.9 on: 22809 is 2.28.9.
inline constexpr int kNcclOldest = 21901;  // before it, an abort often hangs
inline constexpr int kNcclScalable = 22703;
inline constexpr int kNcclNamedComms = 22700;

// clang-format off
#define MUSTER_NCCL(F)                                                                            \
  F(NcclResult, ncclGetVersion, int*)                                                             \
  F(const char*, ncclGetErrorString, NcclResult)                                                  \
  F(const char*, ncclGetLastError, NcclComm)                                                      \
  F(NcclResult, ncclGetUniqueId, NcclId*)                                                         \
  F(NcclResult, ncclCommInitRankConfig, NcclComm*, int, NcclId, int, NcclConfig*)                 \
  F(NcclResult, ncclCommGetAsyncError, NcclComm, NcclResult*)                                     \
  F(NcclResult, ncclCommFinalize, NcclComm)                                                       \
  F(NcclResult, ncclCommDestroy, NcclComm)                                                        \
  F(NcclResult, ncclCommAbort, NcclComm)                                                          \
  F(NcclResult, ncclAllReduce, const void*, void*, std::size_t, int, int, NcclComm, CuStream)     \
  F(NcclResult, ncclReduceScatter, const void*, void*, std::size_t, int, int, NcclComm, CuStream) \
  F(NcclResult, ncclAllGather, const void*, void*, std::size_t, int, NcclComm, CuStream)          \
  F(NcclResult, ncclBroadcast, const void*, void*, std::size_t, int, int, NcclComm, CuStream)
// Only where the library is new enough; nullptr elsewhere.
#define MUSTER_NCCL_OPTIONAL(F)                                                                   \
  F(NcclResult, ncclCommInitRankScalable, NcclComm*, int, int, int, NcclId*, NcclConfig*)
// clang-format on

struct NcclApi {
#define MUSTER_NCCL_POINTER(result, name, ...) result (*name)(__VA_ARGS__) = nullptr;
  MUSTER_NCCL(MUSTER_NCCL_POINTER)
  MUSTER_NCCL_OPTIONAL(MUSTER_NCCL_POINTER)
#undef MUSTER_NCCL_POINTER
  int version = 0;
  std::string library;
};

// kNotFound: no libnccl.so.2 here; kFailedPrecondition: too old, or it lacks a function. Both say
// what to install.
absl::StatusOr<NcclApi> load_nccl();

// OK, or why a library of this version will not do.
absl::Status check_nccl_version(int version, const std::string& library);

// Non-blocking, in the layout that a library of this version knows. `name` is for NCCL's own
// messages and must live as long as the communicator.
NcclConfig nccl_config(int version, const char* name);

// 22809 as people write it: "2.28.9".
std::string nccl_version_text(int version);

// "unhandled system error: what NCCL said last". `comm` may be nullptr.
std::string nccl_words(const NcclApi& api, NcclResult result, NcclComm comm);

}  // namespace muster::runtime::cuda
