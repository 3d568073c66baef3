// SPDX-License-Identifier: Apache-2.0
//
// Our declarations of the driver's functions, cuBLASLt's and NCCL's against NVIDIA's own headers,
// where a toolkit is found. Those come first: cuda.h gives some functions the names of their
// present forms, here and in our table alike.
#include <cublasLt.h>
#include <cuda.h>
#if __has_include(<nccl.h>)  // a package of its own
#include <nccl.h>
#endif
#include <type_traits>

#include <catch2/catch.hpp>

#include "worker_runtime/cuda/blas_api.h"
#include "worker_runtime/cuda/driver_api.h"
#include "worker_runtime/cuda/nccl_api.h"

namespace muster::runtime::cuda {
namespace {

// Enumerations are ints, and cuda.h's structures of sixteen bytes are ours.
template <class T>
struct Plain {
  using Type = T;
};
template <class T>
requires std::is_enum_v<T>
struct Plain<T> {
  using Type = int;
};
template <>
struct Plain<CUuuid> {
  using Type = CuUuid;
};
template <class T>
struct Plain<T*> {
  using Type =
      std::conditional_t<std::is_const_v<T>, const typename Plain<std::remove_const_t<T>>::Type*,
                         typename Plain<T>::Type*>;
};

template <class F>
struct Signature;
template <class R, class... A>
struct Signature<R (*)(A...)> {
  using Type = typename Plain<R>::Type (*)(typename Plain<A>::Type...);
};

template <class Theirs, class Ours>
constexpr bool same = std::is_same_v<typename Signature<Theirs>::Type, Ours>;

#define MUSTER_SAME(name, ...) \
  static_assert(same<decltype(&name), decltype(DriverApi::name)>, #name);
MUSTER_CU_DRIVER(MUSTER_SAME)

// Objects that we never look into, and structures whose layout is compared below.
template <>
struct Plain<cublasLtContext> {
  using Type = void;
};
template <>
struct Plain<cublasLtMatmulDescOpaque_t> {
  using Type = void;
};
template <>
struct Plain<cublasLtMatrixLayoutOpaque_t> {
  using Type = void;
};
template <>
struct Plain<cublasLtMatmulPreferenceOpaque_t> {
  using Type = void;
};
template <>
struct Plain<cublasLtMatmulAlgo_t> {
  using Type = LtAlgorithm;
};
template <>
struct Plain<cublasLtMatmulHeuristicResult_t> {
  using Type = LtHeuristicResult;
};
#define MUSTER_SAME_BLAS(result, name, ...) \
  static_assert(same<decltype(&name), decltype(BlasApi::name)>, #name);
MUSTER_CU_BLAS(MUSTER_SAME_BLAS)

static_assert(sizeof(LtAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(LtHeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(LtHeuristicResult, workspace) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(LtHeuristicResult, state) ==
              offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(kLtAllocFailed == CUBLAS_STATUS_ALLOC_FAILED);
static_assert(kLtInvalidValue == CUBLAS_STATUS_INVALID_VALUE);
static_assert(kLtNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(kLtF32 == CUDA_R_32F && kLtF16 == CUDA_R_16F && kLtBf16 == CUDA_R_16BF);
static_assert(kLtCompute32 == CUBLAS_COMPUTE_32F && kLtTranspose == CUBLAS_OP_T);
static_assert(kLtTransposeA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(kLtTransposeB == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(kLtEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE);
static_assert(kLtBiasPointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(kLtBiasType == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
static_assert(kLtEpilogueBias == CUBLASLT_EPILOGUE_BIAS);
static_assert(kLtWorkspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(kLtReductions == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(kLtAlignment[0] == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(kLtAlignment[1] == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(kLtAlignment[2] == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(kLtAlignment[3] == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(kLtReduceInComputeType == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);

#ifdef NCCL_VERSION_CODE
// NCCL: enumerations are ints, identifiers and configurations are structures laid out alike.
template <>
struct Plain<ncclUniqueId> {
  using Type = NcclId;
};
template <>
struct Plain<ncclConfig_t> {
  using Type = NcclConfig;
};
#define MUSTER_SAME_NCCL(result, name, ...) \
  static_assert(same<decltype(&name), decltype(NcclApi::name)>, #name);
MUSTER_NCCL(MUSTER_SAME_NCCL)
#if NCCL_VERSION_CODE >= 22703
MUSTER_NCCL_OPTIONAL(MUSTER_SAME_NCCL)
#endif

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(kNcclSuccess == ncclSuccess && kNcclInProgress == ncclInProgress);
static_assert(kNcclCudaError == ncclUnhandledCudaError && kNcclSystemError == ncclSystemError);
static_assert(kNcclInternalError == ncclInternalError && kNcclRemoteError == ncclRemoteError);
static_assert(kNcclInvalidArgument == ncclInvalidArgument);
static_assert(kNcclInvalidUsage == ncclInvalidUsage);
static_assert(kNcclU8 == ncclUint8 && kNcclU64 == ncclUint64 && kNcclF16 == ncclFloat16);
static_assert(kNcclF32 == ncclFloat32 && kNcclF64 == ncclFloat64 && kNcclBf16 == ncclBfloat16);
static_assert(kNcclSum == ncclSum);
#if NCCL_VERSION_CODE >= 22800
static_assert(sizeof(NcclConfig) == sizeof(ncclConfig_t));
#define MUSTER_SAME_FIELD(ours, theirs) \
  static_assert(offsetof(NcclConfig, ours) == offsetof(ncclConfig_t, theirs), #theirs);
MUSTER_SAME_FIELD(version, version)
MUSTER_SAME_FIELD(blocking, blocking)
MUSTER_SAME_FIELD(net_name, netName)
MUSTER_SAME_FIELD(split_share, splitShare)
MUSTER_SAME_FIELD(traffic_class, trafficClass)
MUSTER_SAME_FIELD(comm_name, commName)
MUSTER_SAME_FIELD(nvls_ctas, nvlsCTAs)
MUSTER_SAME_FIELD(channels_per_net_peer, nChannelsPerNetPeer)
MUSTER_SAME_FIELD(nvlink_centric_sched, nvlinkCentricSched)
static_assert(NCCL_CONFIG_UNDEF_INT == INT_MIN);
#endif
#endif

static_assert(kCuOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kCuNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(kCuNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kCuInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kCuInvalidImage == CUDA_ERROR_INVALID_IMAGE);
static_assert(kCuInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(kCuNoBinaryForGpu == CUDA_ERROR_NO_BINARY_FOR_GPU);
static_assert(kCuUnsupportedPtx == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
static_assert(kCuInvalidHandle == CUDA_ERROR_INVALID_HANDLE);
static_assert(kCuIllegalState == CUDA_ERROR_ILLEGAL_STATE);
static_assert(kCuNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(kCuCaptureUnsupported == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
static_assert(kCuCaptureInvalidated == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
static_assert(kCuCaptureThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(kCuNotReady == CUDA_ERROR_NOT_READY);
static_assert(kCuAttributeMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kCuAttributeCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kCuAttributeCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kCuAttributeSharedPerBlockOptin ==
              CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(kCuFunctionMaxDynamicShared == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kCuStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kCuEventDisableTiming == CU_EVENT_DISABLE_TIMING);

}  // namespace

TEST_CASE("declarations of the driver's functions are those of cuda.h") {
  SUCCEED("checked by the compiler");
}

}  // namespace muster::runtime::cuda
