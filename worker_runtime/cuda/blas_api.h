// SPDX-License-Identifier: Apache-2.0
//
// What we call of cuBLASLt, as a table of function pointers; names and meanings are those of the
// cuBLASLt reference. Declared here, since hosts that build this need no CUDA; where a toolkit is
// found, a test compares signatures and numbers with cublasLt.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker_runtime/cuda/driver_api.h"

namespace muster::runtime::cuda {

using LtStatus = int;
// Handle, product, matrix and preference are pointers to things that we never look into.
using LtObject = void*;

// Chosen for one product; opaque, but its bytes say what was chosen.
struct LtAlgorithm {
  std::uint64_t data[8] = {};
};
struct LtHeuristicResult {
  LtAlgorithm algorithm;
  std::size_t workspace = 0;
  LtStatus state = 0;
  float waves = 0;
  int reserved[4] = {};
};

inline constexpr LtStatus kLtSuccess = 0;
inline constexpr LtStatus kLtAllocFailed = 3;
inline constexpr LtStatus kLtInvalidValue = 7;
inline constexpr LtStatus kLtNotSupported = 15;

inline constexpr int kLtF32 = 0;         // CUDA_R_32F
inline constexpr int kLtF16 = 2;         // CUDA_R_16F
inline constexpr int kLtBf16 = 14;       // CUDA_R_16BF
inline constexpr int kLtCompute32 = 68;  // CUBLAS_COMPUTE_32F: FP32 throughout, no TF32

inline constexpr int kLtTransposeA = 3;  // attributes of a product
inline constexpr int kLtTransposeB = 4;
inline constexpr int kLtEpilogue = 7;
inline constexpr int kLtBiasPointer = 8;
inline constexpr int kLtBiasType = 26;
inline constexpr std::int32_t kLtTranspose = 1;  // CUBLAS_OP_T
inline constexpr std::uint32_t kLtEpilogueBias = 4;

inline constexpr int kLtWorkspace = 1;  // attributes of a preference
inline constexpr int kLtReductions = 3;
inline constexpr int kLtAlignment[] = {5, 6, 7, 8};  // of a, b, c and d
inline constexpr std::uint32_t kLtReduceInComputeType = 2;

// clang-format off
#define MUSTER_CU_BLAS(F)                                                                         \
  F(LtStatus, cublasLtCreate, LtObject*)                                                          \
  F(LtStatus, cublasLtDestroy, LtObject)                                                          \
  F(std::size_t, cublasLtGetVersion, void)                                                        \
  F(const char*, cublasLtGetStatusString, LtStatus)                                               \
  F(LtStatus, cublasLtMatmulDescCreate, LtObject*, int, int)                                      \
  F(LtStatus, cublasLtMatmulDescDestroy, LtObject)                                                \
  F(LtStatus, cublasLtMatmulDescSetAttribute, LtObject, int, const void*, std::size_t)            \
  F(LtStatus, cublasLtMatrixLayoutCreate, LtObject*, int, std::uint64_t, std::uint64_t,           \
    std::int64_t)                                                                                 \
  F(LtStatus, cublasLtMatrixLayoutDestroy, LtObject)                                              \
  F(LtStatus, cublasLtMatmulPreferenceCreate, LtObject*)                                          \
  F(LtStatus, cublasLtMatmulPreferenceDestroy, LtObject)                                          \
  F(LtStatus, cublasLtMatmulPreferenceSetAttribute, LtObject, int, const void*, std::size_t)      \
  F(LtStatus, cublasLtMatmulAlgoGetHeuristic, LtObject, LtObject, LtObject, LtObject, LtObject,   \
    LtObject, LtObject, int, LtHeuristicResult*, int*)                                            \
  F(LtStatus, cublasLtMatmul, LtObject, LtObject, const void*, const void*, LtObject,             \
    const void*, LtObject, const void*, const void*, LtObject, void*, LtObject,                   \
    const LtAlgorithm*, void*, std::size_t, CuStream)
// clang-format on

struct BlasApi {
#define MUSTER_CU_BLAS_POINTER(result, name, ...) result (*name)(__VA_ARGS__) = nullptr;
  MUSTER_CU_BLAS(MUSTER_CU_BLAS_POINTER)
#undef MUSTER_CU_BLAS_POINTER
  std::string library;
};

// libcublasLt.so.12 or .13: that of the driver's own version of CUDA where both are there.
// kNotFound with what to install; kFailedPrecondition: it lacks a function.
absl::StatusOr<BlasApi> load_blas();
// The names to look for, in that order, with a driver for `driver` (12040 for CUDA 12.4; 0: none).
std::vector<std::string> blas_names(int driver);

// OK for kLtSuccess, else kInternal with "WHAT: CUBLAS_STATUS_…".
absl::Status blas_status(const BlasApi& api, LtStatus result, const std::string& what);

}  // namespace muster::runtime::cuda
