// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bench/target.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "worker_runtime/collectives/ops.h"
#include "worker_runtime/numerics/reduce.h"

namespace muster::runtime {
namespace {

// Numbers are copied from a stock of whole periods, a piece at a time; one period more, so that
// every round finds a piece from where it begins.
class Pieces {
 public:
  explicit Pieces(std::size_t elements) {
    const std::size_t all = (elements + Pattern::kPeriod - 1) / Pattern::kPeriod;
    periods_ = std::clamp<std::size_t>(all, 1, kMostPeriods);
  }
  std::size_t stock_periods() const { return periods_ + 1; }
  std::size_t size() const { return periods_ * Pattern::kPeriod; }

  // body(first element, elements) until one fails.
  template <class Body>
  absl::Status each(std::size_t count, const Body& body) const {
    for (std::size_t at = 0; at < count; at += size()) {
      absl::Status status = body(at, std::min(size(), count - at));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  static constexpr std::size_t kMostPeriods = 256;  // 4 MiB
  std::size_t periods_ = 1;
};

class HostTarget final : public SumTarget {
 public:
  HostTarget(Collectives& group, WireType wire, const Pattern& pattern, std::size_t elements)
      : group_(group),
        wire_(wire),
        pattern_(pattern),
        pieces_(elements),
        stock_(pattern.repeated(pieces_.stock_periods())),
        data_(elements) {}

  absl::Status fill(std::size_t count, std::uint64_t round) override {
    const float* const from = stock_.data() + Pattern::start(round);
    return pieces_.each(count, [&](std::size_t at, std::size_t elements) {
      std::copy_n(from, elements, data_.data() + at);
      return absl::OkStatus();
    });
  }
  absl::Status sum(std::size_t count) override {
    return all_reduce_sum(group_, std::span(data_).first(count), wire_, numerics::kNormBlock, 0);
  }
  absl::StatusOr<std::uint64_t> wrong(std::size_t count, std::uint64_t round) override {
    return pattern_.count_wrong(std::span(data_).first(count), 0, round);
  }

 private:
  Collectives& group_;
  WireType wire_;
  const Pattern& pattern_;
  Pieces pieces_;
  std::vector<float> stock_, data_;
};

class DeviceTarget final : public SumTarget {
 public:
  DeviceTarget(std::shared_ptr<cuda::Device> device,
               std::unique_ptr<cuda::GradientExchange> exchange, const Pattern& pattern,
               std::size_t elements)
      : device_(std::move(device)),
        exchange_(std::move(exchange)),
        pattern_(pattern),
        pieces_(elements) {}

  absl::Status prepare(std::size_t elements) {
    const std::vector<float> stock = pattern_.repeated(pieces_.stock_periods());
    auto stream = device_->make_stream();
    if (!stream.ok()) return stream.status();
    stream_ = *std::move(stream);
    auto on_device = device_->allocate(stock.size() * sizeof(float));
    if (!on_device.ok()) return on_device.status();
    stock_ = *std::move(on_device);
    auto data = device_->allocate(elements * sizeof(float));
    if (!data.ok()) return data.status();
    data_ = *std::move(data);
    auto host = device_->allocate_pinned(pieces_.size() * sizeof(float));
    if (!host.ok()) return host.status();
    host_ = *std::move(host);
    const absl::Status status =
        stream_->copy_to_device(stock_.data(), stock.data(), stock.size() * sizeof(float));
    return status.ok() ? stream_->synchronize() : status;
  }

  absl::Status fill(std::size_t count, std::uint64_t round) override {
    const float* const from = stock_.as<float>() + Pattern::start(round);
    const absl::Status status = pieces_.each(count, [&](std::size_t at, std::size_t elements) {
      return stream_->copy(data_.as<float>() + at, from, elements * sizeof(float));
    });
    return status.ok() ? stream_->synchronize() : status;
  }
  absl::Status sum(std::size_t count) override {
    absl::Status status = exchange_->start({0, count}, data_.as<float>(), *stream_);
    if (status.ok()) status = exchange_->finish(*stream_);
    if (status.ok()) status = stream_->synchronize();
    return status.ok() ? exchange_->check() : status;
  }
  absl::StatusOr<std::uint64_t> wrong(std::size_t count, std::uint64_t round) override {
    std::uint64_t wrong = 0;
    const absl::Status status = pieces_.each(count, [&](std::size_t at, std::size_t elements) {
      absl::Status here =
          stream_->copy_to_host(host_.data(), data_.as<float>() + at, elements * sizeof(float));
      if (here.ok()) here = stream_->synchronize();
      if (here.ok()) wrong += pattern_.count_wrong({host_.as<float>(), elements}, at, round);
      return here;
    });
    if (!status.ok()) return status;
    return wrong;
  }
  absl::Status close() override { return exchange_->close(); }

 private:
  std::shared_ptr<cuda::Device> device_;
  std::unique_ptr<cuda::GradientExchange> exchange_;
  const Pattern& pattern_;
  Pieces pieces_;
  std::unique_ptr<cuda::Stream> stream_;
  cuda::Memory stock_, data_, host_;
};

}  // namespace

std::unique_ptr<SumTarget> make_host_target(Collectives& group, WireType wire,
                                            const Pattern& pattern, std::size_t elements) {
  return std::make_unique<HostTarget>(group, wire, pattern, elements);
}

absl::StatusOr<std::unique_ptr<SumTarget>> make_device_target(
    std::shared_ptr<cuda::Device> device, std::unique_ptr<cuda::GradientExchange> exchange,
    const Pattern& pattern, std::size_t elements) {
  auto target =
      std::make_unique<DeviceTarget>(std::move(device), std::move(exchange), pattern, elements);
  const absl::Status prepared = target->prepare(elements);
  if (!prepared.ok()) return prepared;
  return target;
}

}  // namespace muster::runtime
