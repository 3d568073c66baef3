// SPDX-License-Identifier: Apache-2.0
//
// Device -> pinned host memory on a stream of its own while backward goes on; between hosts by the
// group, bucket after bucket; back on the same stream. While one bucket is on the network, the
// ones after it arrive from the device and those before it return.
#include <span>
#include <utility>
#include <vector>

#include "worker_runtime/collectives/ops.h"
#include "worker_runtime/cuda/engine/exchange.h"
#include "worker_runtime/numerics/reduce.h"

namespace muster::runtime::cuda {
namespace {

class StagedExchange final : public GradientExchange {
 public:
  StagedExchange(std::shared_ptr<Device> device, Collectives& group, WireType wire,
                 std::uint64_t layout_hash)
      : device_(std::move(device)), group_(group), wire_(wire), layout_hash_(layout_hash) {}

  absl::Status prepare(std::size_t elements) {
    auto out = device_->make_stream();
    if (!out.ok()) return out.status();
    out_ = *std::move(out);
    auto back = device_->make_stream();
    if (!back.ok()) return back.status();
    back_ = *std::move(back);
    auto host = device_->allocate_pinned(elements * sizeof(float));
    if (!host.ok()) return host.status();
    host_ = *std::move(host);
    return absl::OkStatus();
  }

  absl::Status start(const Bucket& bucket, float* sum, Stream& compute) override {
    auto place = next_place();
    if (!place.ok()) return place.status();
    Place& at = **place;
    at.bucket = bucket;
    at.sum = sum;
    absl::Status status = compute.record(*at.ready);
    if (status.ok()) status = out_->wait_for(*at.ready);
    if (status.ok()) status = out_->copy_to_host(host_at(bucket), sum, bytes(bucket));
    if (status.ok()) status = out_->record(*at.here);
    return status;
  }

  absl::Status finish(Stream& compute) override {
    for (const Place& at : std::span(places_).first(std::exchange(used_, 0))) {
      absl::Status status = at.here->wait();
      if (status.ok()) {
        status = all_reduce_sum(group_, {host_at(at.bucket), at.bucket.count}, wire_,
                                numerics::kNormBlock, layout_hash_);
      }
      if (status.ok()) status = back_->copy_to_device(at.sum, host_at(at.bucket), bytes(at.bucket));
      if (status.ok()) status = back_->record(*at.ready);
      if (status.ok()) status = compute.wait_for(*at.ready);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  struct Place {
    Bucket bucket;
    float* sum = nullptr;
    std::unique_ptr<Event> ready, here;
  };

  absl::StatusOr<Place*> next_place() {
    if (used_ == places_.size()) {
      auto ready = device_->make_event();
      if (!ready.ok()) return ready.status();
      auto here = device_->make_event();
      if (!here.ok()) return here.status();
      places_.push_back({{}, nullptr, *std::move(ready), *std::move(here)});
    }
    return &places_[used_++];
  }
  float* host_at(const Bucket& bucket) const { return host_.as<float>() + bucket.offset; }
  static std::size_t bytes(const Bucket& bucket) { return bucket.count * sizeof(float); }

  std::shared_ptr<Device> device_;
  Collectives& group_;
  WireType wire_;
  std::uint64_t layout_hash_;
  std::unique_ptr<Stream> out_, back_;
  Memory host_;  // the whole gradient
  std::vector<Place> places_;
  std::size_t used_ = 0;  // of them, in this step
};

class NoExchange final : public GradientExchange {
 public:
  absl::Status start(const Bucket&, float*, Stream&) override { return absl::OkStatus(); }
  absl::Status finish(Stream&) override { return absl::OkStatus(); }
};

}  // namespace

std::unique_ptr<GradientExchange> make_no_exchange() {
  return std::make_unique<NoExchange>();
}

absl::StatusOr<std::unique_ptr<GradientExchange>> make_staged_exchange(
    std::shared_ptr<Device> device, Collectives& group, WireType wire, std::uint64_t layout_hash,
    std::size_t elements) {
  auto exchange = std::make_unique<StagedExchange>(std::move(device), group, wire, layout_hash);
  const absl::Status prepared = exchange->prepare(elements);
  if (!prepared.ok()) return prepared;
  return exchange;
}

}  // namespace muster::runtime::cuda
