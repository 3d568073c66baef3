// SPDX-License-Identifier: Apache-2.0
//
// Matrix products on a device, by cuBLASLt: FP32 sums, the first algorithm that its heuristic
// offers, none that keeps partial sums in 16 bits. What was chosen is part of signature(), since
// it decides bits: ranks and resumed runs compare it.
//
// Thread rule: one thread per object at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker_runtime/cuda/blas_api.h"
#include "worker_runtime/cuda/device.h"

namespace muster::runtime::cuda {

enum class Number : std::uint8_t { kF32, kBf16, kF16 };

// d [m][n] = op(a) [m][k] op(b) [k][n] (+ bias [n]) (+ c [m][n]), row-major and dense, everything
// in device memory. a, b, bias: `in`. c and d: `out`; c may be d. op transposes what is stored as
// [k][m] or [n][k].
struct DeviceProduct {
  bool transpose_a = false;
  bool transpose_b = false;
  std::size_t m = 0, n = 0, k = 0;
  Number in = Number::kF32;
  Number out = Number::kF32;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;  // none: nullptr
  const void* c = nullptr;     // none: nullptr
  void* d = nullptr;
  std::size_t ldc = 0;  // row stride of c and d; 0: n
  std::size_t lda = 0;  // row stride of a as stored; 0: dense
};

class DeviceProducts {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceProducts>> create(const BlasApi& api,
                                                                std::shared_ptr<Device> device);
  ~DeviceProducts();
  DeviceProducts(const DeviceProducts&) = delete;
  DeviceProducts& operator=(const DeviceProducts&) = delete;

  // Chooses its algorithm, without touching the device.
  absl::Status plan(const DeviceProduct& product) { return plan_for(product).status(); }
  // Queues it. The objects' shapes decide the algorithm, found once and kept.
  absl::Status run(Stream& stream, const DeviceProduct& product);

  // Version of the library and a digest of every algorithm used so far, in order of first use.
  std::string signature() const;

 private:
  struct Plan;
  DeviceProducts(const BlasApi& api, std::shared_ptr<Device> device);
  absl::StatusOr<Plan*> plan_for(const DeviceProduct& product);
  absl::Status make(const DeviceProduct& product, Plan& plan);

  BlasApi api_;
  std::shared_ptr<Device> device_;
  LtObject handle_ = nullptr;
  Memory workspace_;
  std::map<std::string, std::unique_ptr<Plan>> plans_;  // by shape and types
  std::uint64_t digest_ = 0;
};

}  // namespace muster::runtime::cuda
