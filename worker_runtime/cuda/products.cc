// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/products.h"

#include <array>
#include <cstring>
#include <utility>
#include <vector>

namespace muster::runtime::cuda {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20U;

int type_of(Number number) {
  switch (number) {
    case Number::kBf16: return kLtBf16;
    case Number::kF16: return kLtF16;
    case Number::kF32: break;
  }
  return kLtF32;
}

const char* name_of(Number number) {
  switch (number) {
    case Number::kBf16: return "bf16";
    case Number::kF16: return "fp16";
    case Number::kF32: break;
  }
  return "fp32";
}

std::size_t stride_of_a(const DeviceProduct& p) {
  return p.lda != 0 ? p.lda : p.transpose_a ? p.m : p.k;
}
std::size_t stride_of_c(const DeviceProduct& p) {
  return p.ldc != 0 ? p.ldc : p.n;
}

// Bytes that the arrays' addresses are multiples of, as far as any algorithm cares; cuBLASLt takes
// them for 256 where it is not told.
std::uint32_t alignment_of(const DeviceProduct& p) {
  std::uintptr_t bits = 16;
  for (const void* array : {p.a, p.b, p.c, static_cast<const void*>(p.d)})
    bits |= reinterpret_cast<std::uintptr_t>(array);
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

// "fp32 [64][256] = bf16 [64][128] x T[256][128] + bias + c": a key, and what an error names.
std::string text_of(const DeviceProduct& p) {
  const auto matrix = [](bool transposed, std::size_t rows, std::size_t columns) {
    return std::string(transposed ? "T[" : "[") + std::to_string(transposed ? columns : rows) +
           "][" + std::to_string(transposed ? rows : columns) + "]";
  };
  std::string text = std::string(name_of(p.out)) + " " + matrix(false, p.m, p.n) + " = " +
                     name_of(p.in) + " " + matrix(p.transpose_a, p.m, p.k) + " x " +
                     matrix(p.transpose_b, p.k, p.n);
  if (p.lda != 0) text += " stride " + std::to_string(p.lda);
  if (p.ldc != 0) text += " into stride " + std::to_string(p.ldc);
  if (p.bias != nullptr) text += " + bias";
  if (p.c != nullptr) text += " + c";
  if (alignment_of(p) != 16) text += " aligned to " + std::to_string(alignment_of(p));
  return text;
}

// FNV-1a; told apart, not protected.
std::uint64_t mixed(std::uint64_t digest, const void* data, std::size_t size) {
  if (digest == 0) digest = 0xcbf29ce484222325U;
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < size; ++i)
    digest = (digest ^ bytes[i]) * 0x100000001b3U;
  return digest;
}

}  // namespace

// cuBLASLt counts in columns first: a row-major matrix is its transpose there. So d' = b' a' with
// the roles of a and b, and of m and n, exchanged.
struct DeviceProducts::Plan {
  explicit Plan(const BlasApi& table) : api(table) {}
  ~Plan() {
    for (const LtObject layout : {a, b, c}) {
      if (layout != nullptr) api.cublasLtMatrixLayoutDestroy(layout);
    }
    if (product != nullptr) api.cublasLtMatmulDescDestroy(product);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const BlasApi& api;
  LtObject product = nullptr;
  LtObject a = nullptr;
  LtObject b = nullptr;
  LtObject c = nullptr;  // and d
  LtAlgorithm algorithm;
};

DeviceProducts::DeviceProducts(const BlasApi& api, std::shared_ptr<Device> device)
    : api_(api), device_(std::move(device)) {}

DeviceProducts::~DeviceProducts() {
  plans_.clear();
  if (handle_ != nullptr) api_.cublasLtDestroy(handle_);
}

absl::StatusOr<std::unique_ptr<DeviceProducts>> DeviceProducts::create(
    const BlasApi& api, std::shared_ptr<Device> device) {
  std::unique_ptr<DeviceProducts> products(new DeviceProducts(api, std::move(device)));
  absl::Status made = blas_status(api, api.cublasLtCreate(&products->handle_), "cublasLtCreate");
  if (!made.ok()) return made;
  absl::StatusOr<Memory> workspace = products->device_->allocate(kWorkspace);
  if (!workspace.ok()) return workspace.status();
  products->workspace_ = std::move(*workspace);
  return products;
}

absl::Status DeviceProducts::make(const DeviceProduct& p, Plan& plan) {
  LtStatus first = kLtSuccess;
  const auto call = [&first](LtStatus result) {
    if (first == kLtSuccess) first = result;
    return first == kLtSuccess;
  };
  const auto set = [&](int attribute, const auto& value) {
    call(api_.cublasLtMatmulDescSetAttribute(plan.product, attribute, &value, sizeof(value)));
  };
  const auto layout = [&](LtObject& made, Number type, std::size_t rows, std::size_t columns,
                          std::size_t stride) {
    call(api_.cublasLtMatrixLayoutCreate(&made, type_of(type), rows, columns,
                                         static_cast<std::int64_t>(stride)));
  };
  if (call(api_.cublasLtMatmulDescCreate(&plan.product, kLtCompute32, kLtF32))) {
    if (p.transpose_b) set(kLtTransposeA, kLtTranspose);
    if (p.transpose_a) set(kLtTransposeB, kLtTranspose);
    if (p.bias != nullptr) {
      set(kLtEpilogue, kLtEpilogueBias);
      const std::int32_t type = type_of(p.in);
      set(kLtBiasType, type);
      set(kLtBiasPointer, p.bias);
    }
  }
  layout(plan.a, p.in, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k,
         p.transpose_b ? p.k : p.n);
  layout(plan.b, p.in, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, stride_of_a(p));
  layout(plan.c, p.out, p.n, p.m, stride_of_c(p));
  LtObject preference = nullptr;
  LtHeuristicResult found;
  int count = 0;
  if (first == kLtSuccess) call(api_.cublasLtMatmulPreferenceCreate(&preference));
  const auto prefer = [&](int attribute, const auto& value) {
    if (first != kLtSuccess) return;
    call(api_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
  };
  prefer(kLtWorkspace, kWorkspace);
  prefer(kLtReductions, kLtReduceInComputeType);
  for (const int attribute : kLtAlignment)
    prefer(attribute, alignment_of(p));
  if (first == kLtSuccess) {
    call(api_.cublasLtMatmulAlgoGetHeuristic(handle_, plan.product, plan.a, plan.b, plan.c, plan.c,
                                             preference, 1, &found, &count));
  }
  if (preference != nullptr) api_.cublasLtMatmulPreferenceDestroy(preference);
  if (first == kLtSuccess && count == 0) first = kLtNotSupported;
  plan.algorithm = found.algorithm;
  return blas_status(api_, first, text_of(p));
}

absl::StatusOr<DeviceProducts::Plan*> DeviceProducts::plan_for(const DeviceProduct& product) {
  const std::string key = text_of(product);
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second.get();
  auto plan = std::make_unique<Plan>(api_);
  if (absl::Status made = make(product, *plan); !made.ok()) return made;
  digest_ = mixed(digest_, key.data(), key.size());
  digest_ = mixed(digest_, &plan->algorithm, sizeof(plan->algorithm));
  return (plans_[key] = std::move(plan)).get();
}

absl::Status DeviceProducts::run(Stream& stream, const DeviceProduct& p) {
  const absl::StatusOr<Plan*> plan = plan_for(p);
  if (!plan.ok()) return plan.status();
  if (p.bias != nullptr) {
    absl::Status pointed =
        blas_status(api_,
                    api_.cublasLtMatmulDescSetAttribute((*plan)->product, kLtBiasPointer, &p.bias,
                                                        sizeof(p.bias)),
                    text_of(p));
    if (!pointed.ok()) return pointed;
  }
  const float one = 1;
  const float beta = p.c != nullptr ? 1 : 0;
  return blas_status(api_,
                     api_.cublasLtMatmul(handle_, (*plan)->product, &one, p.b, (*plan)->a, p.a,
                                         (*plan)->b, &beta, p.c != nullptr ? p.c : p.d, (*plan)->c,
                                         p.d, (*plan)->c, &(*plan)->algorithm, workspace_.data(),
                                         workspace_.size(), stream.handle()),
                     text_of(p));
}

std::string DeviceProducts::signature() const {
  std::array<char, 17> digest{};
  std::snprintf(digest.data(), digest.size(), "%016llx",
                static_cast<unsigned long long>(digest_));  // NOLINT(google-runtime-int)
  return "cublaslt " + std::to_string(api_.cublasLtGetVersion()) + " " + digest.data();
}

}  // namespace muster::runtime::cuda
