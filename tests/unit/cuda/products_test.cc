// SPDX-License-Identifier: Apache-2.0
//
// Products through the table of cuBLASLt: transposes, strides, bias, addition and number formats
// against FP64, every shape with one plan, and everything given back.
#include "worker_runtime/cuda/products.h"

#include <cmath>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/fake_cuda/blas.h"
#include "tests/support/fake_cuda/driver.h"
#include "tests/unit/numerics/random.h"
#include "worker_runtime/cuda/kernels/pack.h"

namespace muster::runtime::cuda {
namespace {

template <class S>
constexpr Number number_of = std::is_same_v<S, Bf16>  ? Number::kBf16
                             : std::is_same_v<S, F16> ? Number::kF16
                                                      : Number::kF32;

struct Fixture {
  FakeDriver driver;
  std::shared_ptr<Device> device = *Device::open(driver.api(), 0, FakeDriver::images());
  std::unique_ptr<Stream> stream = *device->make_stream();
  std::unique_ptr<DeviceProducts> products = *DeviceProducts::create(fake_blas(), device);

  template <class T>
  Memory on_device(const std::vector<T>& values) {
    Memory memory = *device->allocate(values.size() * sizeof(T));
    REQUIRE(stream->copy_to_device(memory.data(), values.data(), memory.size()).ok());
    return memory;
  }
  template <class T>
  std::vector<T> on_host(const Memory& memory) {
    std::vector<T> values(memory.size() / sizeof(T));
    REQUIRE(stream->copy_to_host(values.data(), memory.data(), memory.size()).ok());
    REQUIRE(stream->synchronize().ok());
    return values;
  }
};

// In, sums in FP32, rounded to Out once: half a unit of Out's last place, and the sum's own error.
template <class In, class Out>
void check(Fixture& f, DeviceProduct p, bool with_bias, bool adds) {
  CAPTURE(p.m, p.n, p.k, p.transpose_a, p.transpose_b, with_bias, adds);
  p.in = number_of<In>;
  p.out = number_of<Out>;
  const auto a = random_values<In>(p.m * p.k, 1);
  const auto b = random_values<In>(p.k * p.n, 2);
  const auto bias = random_values<In>(p.n, 3);
  const auto c = random_values<Out>(p.m * p.n, 4);
  const Memory device_a = f.on_device(a);
  const Memory device_b = f.on_device(b);
  const Memory device_bias = f.on_device(bias);
  const Memory device_d = f.on_device(c);
  p.a = device_a.data();
  p.b = device_b.data();
  p.d = device_d.data();
  if (with_bias) p.bias = device_bias.data();
  if (adds) p.c = p.d;
  const absl::Status status = f.products->run(*f.stream, p);
  INFO(status.ToString());
  REQUIRE(status.ok());
  const auto got = f.on_host<Out>(device_d);
  const double unit = std::is_same_v<Out, Bf16> ? 0x1p-8 : std::is_same_v<Out, F16> ? 0x1p-11 : 0;
  for (std::size_t m = 0; m < p.m; ++m) {
    for (std::size_t n = 0; n < p.n; ++n) {
      double want = with_bias ? static_cast<double>(to_number(bias[n])) : 0;
      double size = std::abs(want);
      for (std::size_t k = 0; k < p.k; ++k) {
        const double x =
            static_cast<double>(to_number(a[p.transpose_a ? k * p.m + m : m * p.k + k]));
        const double y =
            static_cast<double>(to_number(b[p.transpose_b ? n * p.k + k : k * p.n + n]));
        want += x * y;
        size += std::abs(x * y);
      }
      if (adds) want += static_cast<double>(to_number(c[m * p.n + n]));
      const double error = std::abs(static_cast<double>(to_number(got[m * p.n + n])) - want);
      REQUIRE(error <= unit * std::abs(want) + 1e-6 * (size + 1));
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("products with every transpose, bias and addition", "", float, Bf16, F16) {
  Fixture f;
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const bool extras : {false, true}) {
        DeviceProduct p{.transpose_a = transpose_a, .transpose_b = transpose_b};
        p.m = 5;
        p.n = 33;
        p.k = 17;
        check<TestType, TestType>(f, p, extras, !extras);
        check<TestType, float>(f, p, extras, extras);
      }
    }
  }
}

TEST_CASE("rows may be further apart than they are long") {
  Fixture f;
  constexpr std::size_t kRows = 3, kColumns = 4, kStride = 9;
  const auto a = random_values<float>(kRows * kStride, 1);
  const auto b = random_values<float>(kColumns * 2, 2);
  const Memory device_a = f.on_device(a);
  const Memory device_b = f.on_device(b);
  const Memory d = f.on_device(std::vector<float>(kRows * 5, 7.0F));
  DeviceProduct p{.m = kRows,
                  .n = 2,
                  .k = kColumns,
                  .a = device_a.data(),
                  .b = device_b.data(),
                  .d = d.data(),
                  .ldc = 5,
                  .lda = kStride};
  REQUIRE(f.products->run(*f.stream, p).ok());
  const auto got = f.on_host<float>(d);
  for (std::size_t m = 0; m < kRows; ++m) {
    for (std::size_t n = 0; n < 2; ++n) {
      float want = 0;
      for (std::size_t k = 0; k < kColumns; ++k)
        want += a[m * kStride + k] * b[k * 2 + n];
      CHECK(std::abs(got[m * 5 + n] - want) < 1e-5F);
    }
    CHECK(got[m * 5 + 2] == 7.0F);
  }
}

TEST_CASE("arrays that begin anywhere are products too, by a plan of their own") {
  Fixture f;
  const auto numbers = random_values<Bf16>(64, 1);
  const Memory memory = f.on_device(numbers);
  const Memory d = f.on_device(std::vector<float>(32));
  std::string before;
  for (const std::size_t shift : {8U, 4U, 1U}) {  // 16, 8 and 2 bytes
    DeviceProduct p{.m = 2, .n = 2, .k = 2, .in = Number::kBf16, .out = Number::kF32};
    p.a = memory.as<Bf16>() + shift;
    p.b = memory.as<Bf16>() + 16;
    p.d = d.data();
    REQUIRE(f.products->run(*f.stream, p).ok());
    CHECK(f.products->signature() != before);
    before = f.products->signature();
    const auto got = f.on_host<float>(d);
    float want = 0;
    for (std::size_t k = 0; k < 2; ++k)
      want += to_number(numbers[shift + k]) * to_number(numbers[16 + 2 * k]);
    CHECK(std::abs(got[0] - want) < 1e-5F);
  }
}

TEST_CASE("a shape is planned once, and what was chosen is told") {
  std::string first;
  {
    Fixture f;
    DeviceProduct p;
    p.m = p.n = p.k = 4;
    const std::string before = f.products->signature();
    check<float, float>(f, p, false, false);
    const std::size_t alive = fake_blas_alive();
    first = f.products->signature();
    CHECK(first != before);
    CHECK(first.rfind("cublaslt 130000 ", 0) == 0);
    check<float, float>(f, p, false, false);
    CHECK(fake_blas_alive() == alive);
    CHECK(f.products->signature() == first);
    check<Bf16, Bf16>(f, p, false, false);
    CHECK(f.products->signature() != first);
  }
  CHECK(fake_blas_alive() == 0);
}

TEST_CASE("a product that the library does not have is named") {
  Fixture f;
  const DeviceProduct p{.m = 0, .n = 8, .k = 4, .in = Number::kBf16, .out = Number::kBf16};
  const absl::Status status = f.products->run(*f.stream, p);
  CHECK(status.message() == "bf16 [0][8] = bf16 [0][4] x [4][8]: CUBLAS_STATUS_INVALID_VALUE");
  f.products.reset();
  CHECK(fake_blas_alive() == 0);
}

}  // namespace muster::runtime::cuda
