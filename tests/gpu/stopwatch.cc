// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/stopwatch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/gpu/trial.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

constexpr int kTries = 5;
constexpr double kTry = 0.02;  // seconds that one should last
constexpr int kMost = 20;      // repetitions of one

}  // namespace

absl::StatusOr<Memory> random_matrix(Device& device, Stream& stream, Number number,
                                     std::size_t count) {
  auto memory = device.allocate(count * 2);
  if (!memory.ok()) return memory.status();
  const auto fill = [&](const auto& values) {
    absl::Status status;
    for (std::size_t at = 0; status.ok() && at < count; at += values.size()) {
      const std::size_t more = std::min(values.size(), count - at);
      status = stream.copy_to_device(memory->as<std::uint16_t>() + at, values.data(), more * 2);
    }
    return status;
  };
  const absl::Status filled = number == Number::kF16 ? fill(numbers<F16>(count, 1, 0.5F))
                                                     : fill(numbers<Bf16>(count, 1, 0.5F));
  if (!filled.ok()) return filled;
  return memory;
}

absl::StatusOr<Stopwatch> Stopwatch::make(Device& device) {
  Stopwatch made;
  auto begin = device.make_timed_event();
  if (!begin.ok()) return begin.status();
  made.begin_ = *std::move(begin);
  auto end = device.make_timed_event();
  if (!end.ok()) return end.status();
  made.end_ = *std::move(end);
  return made;
}

absl::StatusOr<double> Stopwatch::seconds_of(Stream& stream,
                                             const std::function<absl::Status()>& queue,
                                             int times) const {
  absl::Status status = stream.record(*begin_);
  for (int i = 0; status.ok() && i < times; ++i)
    status = queue();
  if (status.ok()) status = stream.record(*end_);
  if (status.ok()) status = stream.synchronize();
  if (!status.ok()) return status;
  const auto ms = end_->milliseconds_since(*begin_);
  if (!ms.ok()) return ms.status();
  return *ms / 1000 / times;
}

absl::StatusOr<double> Stopwatch::seconds(Stream& stream,
                                          const std::function<absl::Status()>& queue) const {
  // The first loads code and chooses algorithms.
  auto one = seconds_of(stream, queue, 1);
  if (one.ok()) one = seconds_of(stream, queue, 1);
  // A fake's time stands still.
  if (!one.ok() || *one <= 0) return one;
  const int times = std::clamp(static_cast<int>(kTry / *one), 1, kMost);
  std::vector<double> tries;
  for (int i = 0; i < kTries; ++i) {
    auto time = seconds_of(stream, queue, times);
    if (!time.ok()) return time;
    tries.push_back(*time);
  }
  std::sort(tries.begin(), tries.end());
  return tries[tries.size() / 2];
}

absl::StatusOr<double> measure_copy(const Context& context, const Opened& opened, Stream& stream) {
  const std::size_t size = std::size_t{1} << (context.on_fakes ? 16U : 30U);
  auto from = opened.device->allocate(size);
  if (!from.ok()) return from.status();
  auto to = opened.device->allocate(size);
  if (!to.ok()) return to.status();
  const absl::Status zeroed = stream.zero(from->data(), size);
  if (!zeroed.ok()) return zeroed;
  const auto watch = Stopwatch::make(*opened.device);
  if (!watch.ok()) return watch.status();
  auto time = watch->seconds(stream, [&] { return stream.copy(to->data(), from->data(), size); });
  if (!time.ok()) return time;
  return 2 * static_cast<double>(size) / *time;
}

absl::StatusOr<double> measure_product(const Context& context, const Opened& opened, Stream& stream,
                                       Number number) {
  const std::size_t n = context.on_fakes ? 64 : 8192;
  auto a = random_matrix(*opened.device, stream, number, n * n);
  if (!a.ok()) return a.status();
  auto b = random_matrix(*opened.device, stream, number, n * n);
  if (!b.ok()) return b.status();
  auto d = opened.device->allocate(n * n * 2);
  if (!d.ok()) return d.status();
  auto products = DeviceProducts::create(opened.blas, opened.device);
  if (!products.ok()) return products.status();
  const auto watch = Stopwatch::make(*opened.device);
  if (!watch.ok()) return watch.status();
  auto time = watch->seconds(stream, [&] {
    return (*products)->run(stream, {.transpose_b = true,
                                     .m = n,
                                     .n = n,
                                     .k = n,
                                     .in = number,
                                     .out = number,
                                     .a = a->data(),
                                     .b = b->data(),
                                     .d = d->data()});
  });
  if (!time.ok()) return time;
  return 2 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / *time;
}

}  // namespace muster::runtime::cuda::gpu_check
