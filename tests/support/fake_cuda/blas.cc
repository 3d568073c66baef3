// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/blas.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <vector>

#include "tests/support/fake_cuda/state.h"
#include "worker_runtime/cpu/kernels.h"
#include "worker_runtime/cuda/kernels/pack.h"

namespace muster::runtime::cuda {
namespace {

std::atomic<std::size_t> alive{0};

struct Object {
  Object() { ++alive; }
  ~Object() { --alive; }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
};
struct Handle : Object {};
struct Preference : Object {
  std::uint32_t alignment = 256;  // of all, where nothing else is said
};
struct Product : Object {
  bool transpose_a = false;
  bool transpose_b = false;
  bool has_bias = false;
  int bias_type = -1;
  const void* bias = nullptr;
};
struct Layout : Object {
  int type = 0;
  std::size_t rows = 0, columns = 0, stride = 0;
};

template <class T>
LtStatus create(LtObject* made) {
  *made = new T;
  return kLtSuccess;
}
template <class T>
LtStatus destroy(LtObject object) {
  delete static_cast<T*>(object);
  return kLtSuccess;
}

template <class T>
T read(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

LtStatus create_product(LtObject* made, int compute, int scale) {
  if (compute != kLtCompute32 || scale != kLtF32) return kLtNotSupported;
  return create<Product>(made);
}
LtStatus set_product(LtObject object, int attribute, const void* value, std::size_t size) {
  auto* product = static_cast<Product*>(object);
  if (attribute == kLtBiasPointer && size == sizeof(void*)) {
    product->bias = read<const void*>(value);
    return kLtSuccess;
  }
  if (size != 4) return kLtInvalidValue;
  const auto number = read<std::int32_t>(value);
  switch (attribute) {
    case kLtTransposeA: product->transpose_a = number == kLtTranspose; break;
    case kLtTransposeB: product->transpose_b = number == kLtTranspose; break;
    case kLtEpilogue: product->has_bias = number == static_cast<int>(kLtEpilogueBias); break;
    case kLtBiasType: product->bias_type = number; break;
    default: return kLtNotSupported;
  }
  return kLtSuccess;
}
LtStatus create_layout(LtObject* made, int type, std::uint64_t rows, std::uint64_t columns,
                       std::int64_t stride) {
  if (rows == 0 || columns == 0 || stride < static_cast<std::int64_t>(rows)) return kLtInvalidValue;
  auto* layout = new Layout;
  layout->type = type;
  layout->rows = rows;
  layout->columns = columns;
  layout->stride = static_cast<std::size_t>(stride);
  *made = layout;
  return kLtSuccess;
}
LtStatus set_preference(LtObject object, int attribute, const void* value, std::size_t size) {
  if (std::count(std::begin(kLtAlignment), std::end(kLtAlignment), attribute) > 0) {
    if (size != 4) return kLtInvalidValue;
    static_cast<Preference*>(object)->alignment = read<std::uint32_t>(value);
    return kLtSuccess;
  }
  if (attribute == kLtWorkspace) return size == sizeof(std::size_t) ? kLtSuccess : kLtInvalidValue;
  if (attribute != kLtReductions || size != 4) return kLtNotSupported;
  return read<std::uint32_t>(value) == kLtReduceInComputeType ? kLtSuccess : kLtNotSupported;
}

struct Sizes {
  std::size_t m, n, k;
};
// Of op(a) op(b); m = 0: they do not fit.
Sizes sizes_of(const Product& product, const Layout& a, const Layout& b, const Layout& d) {
  const std::size_t m = product.transpose_a ? a.columns : a.rows;
  const std::size_t k = product.transpose_a ? a.rows : a.columns;
  const std::size_t n = product.transpose_b ? b.rows : b.columns;
  const std::size_t k2 = product.transpose_b ? b.columns : b.rows;
  const bool fits = k == k2 && d.rows == m && d.columns == n && a.type == b.type;
  return {fits ? m : 0, n, k};
}

template <std::uint64_t kVariant>
LtStatus choose(LtObject, LtObject product, LtObject a, LtObject b, LtObject, LtObject d,
                LtObject preference, int wanted, LtHeuristicResult* results, int* count) {
  const Sizes sizes = sizes_of(*static_cast<Product*>(product), *static_cast<Layout*>(a),
                               *static_cast<Layout*>(b), *static_cast<Layout*>(d));
  *count = 0;
  if (sizes.m == 0 || wanted < 1) return kLtInvalidValue;
  results[0] = LtHeuristicResult{};
  results[0].algorithm.data[0] = 1;
  results[0].algorithm.data[1] = kVariant;
  results[0].algorithm.data[2] = static_cast<Preference*>(preference)->alignment;
  *count = 1;
  return kLtSuccess;
}

float number_at(const void* array, int type, std::size_t index) {
  if (type == kLtF32) return static_cast<const float*>(array)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(array)[index];
  return type == kLtBf16 ? to_number(Bf16{bits}) : to_number(F16{bits});
}
void put_number(void* array, int type, std::size_t index, float value) {
  if (type == kLtF32) {
    static_cast<float*>(array)[index] = value;
  } else {
    static_cast<std::uint16_t*>(array)[index] =
        type == kLtBf16 ? numerics::to_bf16(value).bits : numerics::to_f16(value).bits;
  }
}

// A matrix in the row-major, dense form that the CPU's product takes: of column-major op(x), its
// transpose.
std::vector<float> transposed_op(const void* array, const Layout& layout, bool transpose) {
  std::vector<float> out(layout.rows * layout.columns);
  for (std::size_t column = 0; column < layout.columns; ++column) {
    for (std::size_t row = 0; row < layout.rows; ++row) {
      const float value = number_at(array, layout.type, column * layout.stride + row);
      out[transpose ? row * layout.columns + column : column * layout.rows + row] = value;
    }
  }
  return out;
}

struct Job {
  bool transpose_a, transpose_b;
  int a_type, b_type, c_type, bias_type;
  std::size_t a_rows, a_columns, a_stride, b_rows, b_columns, b_stride, c_stride;
  Sizes sizes;
  const void* a;
  const void* b;
  const void* c;  // nullptr: none
  void* d;
  const void* bias;
};

Layout& fill(Layout& layout, int type, std::size_t rows, std::size_t columns, std::size_t stride) {
  layout.type = type;
  layout.rows = rows;
  layout.columns = columns;
  layout.stride = stride;
  return layout;
}

void multiply(const Job& job) {
  const Sizes& s = job.sizes;
  Layout a_layout;
  Layout b_layout;
  // d' [n][m] = op(b)' [n][k] op(a)' [k][m].
  const auto left = transposed_op(
      job.b, fill(b_layout, job.b_type, job.b_rows, job.b_columns, job.b_stride), job.transpose_b);
  const auto right = transposed_op(
      job.a, fill(a_layout, job.a_type, job.a_rows, job.a_columns, job.a_stride), job.transpose_a);
  std::vector<float> sum(s.n * s.m);
  const std::size_t columns = (s.m + 15) / 16 * 16;
  std::vector<float> scratch((s.k + 4) * columns);
  kernels<float>(Isa::kPortable)
      .product(false, false, false, s.n, s.m, s.k, left.data(), s.k, right.data(), s.m, sum.data(),
               scratch.data());
  for (std::size_t n = 0; n < s.n; ++n) {
    for (std::size_t m = 0; m < s.m; ++m) {
      float value = sum[n * s.m + m];
      if (job.bias != nullptr) value = value + number_at(job.bias, job.bias_type, m);
      const std::size_t at = n * job.c_stride + m;
      if (job.c != nullptr) value = value + number_at(job.c, job.c_type, at);
      put_number(job.d, job.c_type, at, value);
    }
  }
}

LtStatus matmul(LtObject, LtObject product, const void* alpha, const void* a, LtObject a_layout,
                const void* b, LtObject b_layout, const void* beta, const void* c, LtObject,
                void* d, LtObject d_layout, const LtAlgorithm* algorithm, void*, std::size_t,
                CuStream stream) {
  const auto& p = *static_cast<Product*>(product);
  const auto& la = *static_cast<Layout*>(a_layout);
  const auto& lb = *static_cast<Layout*>(b_layout);
  const auto& ld = *static_cast<Layout*>(d_layout);
  const Sizes sizes = sizes_of(p, la, lb, ld);
  const auto factor = read<float>(beta);
  if (sizes.m == 0 || read<float>(alpha) != 1.0F || (factor != 0.0F && factor != 1.0F)) {
    return kLtInvalidValue;
  }
  if (algorithm == nullptr || algorithm->data[0] != 1) return kLtInvalidValue;
  for (const void* array : {a, b, c, static_cast<const void*>(d)}) {
    // What the heuristic was told of.
    if (reinterpret_cast<std::uintptr_t>(array) % algorithm->data[2] != 0) return kLtInvalidValue;
  }
  const Job job{p.transpose_a,
                p.transpose_b,
                la.type,
                lb.type,
                ld.type,
                p.bias_type,
                la.rows,
                la.columns,
                la.stride,
                lb.rows,
                lb.columns,
                lb.stride,
                ld.stride,
                sizes,
                a,
                b,
                factor == 1 ? c : nullptr,
                d,
                p.has_bias ? p.bias : nullptr};
  Lock lock(fake_driver->mutex);
  if (!fake_driver->streams.contains(stream)) return kLtInvalidValue;
  Operation operation;
  operation.name = "matmul";
  operation.run = [job] { multiply(job); };
  fake_driver->add(lock, stream, std::move(operation));
  return kLtSuccess;
}

}  // namespace

BlasApi fake_blas(bool otherwise) {
  BlasApi api;
  api.library = "fake";
  api.cublasLtCreate = create<Handle>;
  api.cublasLtDestroy = destroy<Handle>;
  api.cublasLtGetVersion = []() -> std::size_t { return 130000; };
  api.cublasLtGetStatusString = [](LtStatus result) -> const char* {
    return result == kLtNotSupported ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                     : "CUBLAS_STATUS_INVALID_VALUE";
  };
  api.cublasLtMatmulDescCreate = create_product;
  api.cublasLtMatmulDescDestroy = destroy<Product>;
  api.cublasLtMatmulDescSetAttribute = set_product;
  api.cublasLtMatrixLayoutCreate = create_layout;
  api.cublasLtMatrixLayoutDestroy = destroy<Layout>;
  api.cublasLtMatmulPreferenceCreate = create<Preference>;
  api.cublasLtMatmulPreferenceDestroy = destroy<Preference>;
  api.cublasLtMatmulPreferenceSetAttribute = set_preference;
  api.cublasLtMatmulAlgoGetHeuristic = otherwise ? choose<1> : choose<0>;
  api.cublasLtMatmul = matmul;
  return api;
}

std::size_t fake_blas_alive() {
  return alive;
}

}  // namespace muster::runtime::cuda
