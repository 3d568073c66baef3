// SPDX-License-Identifier: Apache-2.0
//
// Through pinned host memory, bucket after bucket: each rank adds one slice of every bucket, on
// its device. A bucket's way, on three streams and the host:
//
//   out:   rounded to the wire's type, then to the host, but for the own slice
//   host:  scatter: the other ranks' parts of the own slice arrive
//   back:  they go to the device, are added in rank order, and the sum comes to the host
//   host:  gather: the other ranks' sums arrive
//   back:  they go to the device, and are widened
//
// While one bucket is on the network the ones after it arrive from the device, and the one before
// it is being added.
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "worker_runtime/collectives/ops.h"
#include "worker_runtime/cuda/engine/exchange.h"
#include "worker_runtime/cuda/kernels/names.h"
#include "worker_runtime/numerics/reduce.h"
#include "worker_runtime/train/engine.h"

namespace muster::runtime::cuda {
namespace {

// All ranks' parts of the own slice of one bucket; [ranks][apart(slice)].
struct Slices {
  Memory host, device;
};

template <class W>
class StagedExchange final : public GradientExchange {
 public:
  StagedExchange(std::shared_ptr<Device> device, Collectives& group, std::uint64_t layout_hash)
      : device_(std::move(device)),
        group_(group),
        layout_hash_(layout_hash),
        ranks_(static_cast<std::size_t>(group.size())),
        own_(static_cast<std::size_t>(group.rank())) {}

  absl::Status prepare(const ExchangeRoom& room) {
    absl::Status status = make_stream(out_);
    if (status.ok()) status = make_stream(back_);
    if (status.ok()) status = take(device_->allocate_pinned(room.elements * sizeof(W)), host_);
    if (status.ok() && kNarrow) status = take(device_->allocate(room.elements * sizeof(W)), wire_);
    // Rank 0 has the largest slice.
    const std::size_t slice = own_blocks(room.largest, group_.size(), 0).count;
    const std::size_t bytes = ranks_ * apart(slice) * sizeof(W);
    for (Slices& slices : slices_) {
      if (status.ok()) status = take(device_->allocate_pinned(bytes), slices.host);
      if (status.ok()) status = take(device_->allocate(bytes), slices.device);
    }
    return status;
  }

  absl::Status start(const Bucket& bucket, float* sum, Stream& compute) override {
    auto place = next_place();
    if (!place.ok()) return place.status();
    Place& at = **place;
    at.bucket = bucket;
    at.sum = sum;
    const W* wire = wire_at(at);
    const BlockRange own = slice_of(at, own_);
    absl::Status status = compute.record(*at.ready);
    if (status.ok()) status = out_->wait_for(*at.ready);
    if (status.ok()) status = narrow(at);
    if (status.ok()) {
      status = around(own.offset, own.count, bucket.count, [&](std::size_t first, std::size_t n) {
        return out_->copy_to_host(host_at(at) + first, wire + first, n * sizeof(W));
      });
    }
    if (status.ok()) status = out_->record(*at.here);
    return status;
  }

  absl::Status finish(Stream& compute) override {
    const std::size_t count = std::exchange(used_, 0);
    absl::Status status;
    for (std::size_t i = 0; status.ok() && i < count + 1; ++i) {
      if (i < count) status = scatter(i);
      if (status.ok() && i > 0) status = gather(places_[i - 1], compute);
    }
    return status;
  }

 private:
  static constexpr bool kNarrow = !std::is_same_v<W, float>;
  static constexpr WireType kWire = std::is_same_v<W, Bf16>  ? WireType::kBf16
                                    : std::is_same_v<W, F16> ? WireType::kF16
                                                             : WireType::kF32;
  struct Place {
    Bucket bucket;
    float* sum = nullptr;
    std::unique_ptr<Event> ready, here, added;
  };

  absl::Status make_stream(std::unique_ptr<Stream>& stream) {
    return take(device_->make_stream(), stream);
  }
  template <class T>
  static absl::Status take(absl::StatusOr<T> made, T& to) {
    if (!made.ok()) return made.status();
    to = *std::move(made);
    return absl::OkStatus();
  }
  absl::StatusOr<Place*> next_place() {
    if (used_ == places_.size()) {
      Place place;
      for (std::unique_ptr<Event>* event : {&place.ready, &place.here, &place.added}) {
        const absl::Status made = take(device_->make_event(), *event);
        if (!made.ok()) return made;
      }
      places_.push_back(std::move(place));
    }
    return &places_[used_++];
  }

  // A rank's slice of a bucket, as all_reduce_sum cuts it.
  BlockRange slice_of(const Place& at, std::size_t rank) const {
    return own_blocks(at.bucket.count, group_.size(), static_cast<int>(rank));
  }
  // From one rank's part of a slice to the next: sixteen bytes an access.
  static std::size_t apart(std::size_t slice) { return (slice + kEach - 1) / kEach * kEach; }
  W* host_at(const Place& at) const { return host_.as<W>() + at.bucket.offset; }
  W* wire_at(const Place& at) const {
    if constexpr (kNarrow) {
      return wire_.as<W>() + at.bucket.offset;
    } else {
      return at.sum;
    }
  }
  // What lies before [first, first + count) and behind it.
  template <class Call>
  static absl::Status around(std::size_t first, std::size_t count, std::size_t all, Call call) {
    absl::Status status = call(std::size_t{0}, first);
    return status.ok() ? call(first + count, all - first - count) : status;
  }

  absl::Status narrow(const Place& at) {
    if constexpr (kNarrow) {
      return out_->launch<Cast<float, W>>(element_grid(at.bucket.count),
                                          {at.sum, wire_at(at), at.bucket.count});
    } else {
      return absl::OkStatus();
    }
  }
  absl::Status widen(const Place& at) {
    if constexpr (kNarrow) {
      return back_->launch<Cast<W, float>>(element_grid(at.bucket.count),
                                           {wire_at(at), at.sum, at.bucket.count});
    } else {
      return absl::OkStatus();
    }
  }

  // Each rank gets the parts of its slice, and queues their addition.
  absl::Status scatter(std::size_t index) {
    const Place& at = places_[index];
    Slices& slices = slices_[index % slices_.size()];
    const std::size_t stride = apart(slice_of(at, own_).count);
    std::vector<std::span<const std::byte>> send;
    std::vector<std::span<std::byte>> receive;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const BlockRange slice = slice_of(at, rank);
      W* const part = slices.host.as<W>() + rank * stride;
      send.push_back(std::as_bytes(std::span(host_at(at) + slice.offset, slice.count)));
      receive.push_back(std::as_writable_bytes(std::span(part, slice_of(at, own_).count)));
    }
    absl::Status status = at.here->wait();
    if (status.ok())
      status = group_.exchange({Operation::kAllReduce, kWire, layout_hash_}, send, receive);
    return status.ok() ? add(at, slices) : status;
  }

  absl::Status add(const Place& at, const Slices& slices) {
    const BlockRange own = slice_of(at, own_);
    const std::size_t stride = apart(own.count);
    W* const parts = slices.device.as<W>();
    const W* const arrived = slices.host.as<W>();
    W* const sum = wire_at(at) + own.offset;
    absl::Status status =
        around(own_ * stride, stride, ranks_ * stride, [&](std::size_t first, std::size_t n) {
          return back_->copy_to_device(parts + first, arrived + first, n * sizeof(W));
        });
    if (status.ok()) status = back_->copy(parts + own_ * stride, sum, own.count * sizeof(W));
    if (status.ok()) {
      status = back_->launch<ReduceSlices<W>>(element_grid(own.count),
                                              {parts, sum, ranks_, stride, own.count});
    }
    if (status.ok()) {
      status = back_->copy_to_host(host_at(at) + own.offset, sum, own.count * sizeof(W));
    }
    return status.ok() ? back_->record(*at.added) : status;
  }

  // The slices' sums to everybody, and all of the bucket's to the device. Once the sum is here,
  // its slices have been read: the next but one may arrive in their place.
  absl::Status gather(const Place& at, Stream& compute) {
    const BlockRange own = slice_of(at, own_);
    const std::vector<std::span<const std::byte>> send(
        ranks_, std::as_bytes(std::span(host_at(at) + own.offset, own.count)));
    std::vector<std::span<std::byte>> receive;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const BlockRange slice = slice_of(at, rank);
      receive.push_back(std::as_writable_bytes(std::span(host_at(at) + slice.offset, slice.count)));
    }
    absl::Status status = at.added->wait();
    if (status.ok())
      status = group_.exchange({Operation::kAllGather, kWire, layout_hash_}, send, receive);
    if (status.ok()) {
      status =
          around(own.offset, own.count, at.bucket.count, [&](std::size_t first, std::size_t n) {
            return back_->copy_to_device(wire_at(at) + first, host_at(at) + first, n * sizeof(W));
          });
    }
    if (status.ok()) status = widen(at);
    if (status.ok()) status = back_->record(*at.ready);
    return status.ok() ? compute.wait_for(*at.ready) : status;
  }

  std::shared_ptr<Device> device_;
  Collectives& group_;
  std::uint64_t layout_hash_;
  std::size_t ranks_, own_;
  std::unique_ptr<Stream> out_, back_;
  Memory host_;                   // the whole gradient as it travels
  Memory wire_;                   // … on the device; FP32 travels from where it is
  std::array<Slices, 2> slices_;  // of the bucket that is being added, and of the one that arrives
  std::vector<Place> places_;
  std::size_t used_ = 0;  // of them, in this step
};

class NoExchange final : public GradientExchange {
 public:
  absl::Status start(const Bucket&, float*, Stream&) override { return absl::OkStatus(); }
  absl::Status finish(Stream&) override { return absl::OkStatus(); }
};

template <class W>
absl::StatusOr<std::unique_ptr<GradientExchange>> make(std::shared_ptr<Device> device,
                                                       Collectives& group,
                                                       std::uint64_t layout_hash,
                                                       const ExchangeRoom& room) {
  auto exchange = std::make_unique<StagedExchange<W>>(std::move(device), group, layout_hash);
  const absl::Status prepared = exchange->prepare(room);
  if (!prepared.ok()) return prepared;
  return exchange;
}

}  // namespace

std::unique_ptr<GradientExchange> make_no_exchange() {
  return std::make_unique<NoExchange>();
}

absl::StatusOr<std::unique_ptr<GradientExchange>> make_staged_exchange(
    std::shared_ptr<Device> device, Collectives& group, WireType wire, std::uint64_t layout_hash,
    const ExchangeRoom& room) {
  if (wire == WireType::kBf16) return make<Bf16>(std::move(device), group, layout_hash, room);
  if (wire == WireType::kF16) return make<F16>(std::move(device), group, layout_hash, room);
  return make<float>(std::move(device), group, layout_hash, room);
}

}  // namespace muster::runtime::cuda
