// SPDX-License-Identifier: Apache-2.0
//
// Each bucket is summed in place by one collective of the generation's communicator, on its own
// stream. With a 16-bit wire a bucket is rounded into a buffer, summed there and widened again.
#include <utility>
#include <vector>

#include "worker_runtime/cuda/engine/exchange.h"
#include "worker_runtime/cuda/kernels/names.h"

namespace muster::runtime::cuda {
namespace {

class NcclExchange final : public GradientExchange {
 public:
  NcclExchange(std::shared_ptr<Device> device, std::unique_ptr<Communicator> communicator,
               WireType wire)
      : device_(std::move(device)), communicator_(std::move(communicator)), wire_(wire) {}

  absl::Status prepare(std::size_t elements) {
    if (wire_ == WireType::kF32) return absl::OkStatus();
    auto memory = device_->allocate(elements * 2);
    if (!memory.ok()) return memory.status();
    narrow_ = *std::move(memory);
    return absl::OkStatus();
  }

  absl::Status start(const Bucket& bucket, float* sum, Stream& compute) override {
    if (flights_.size() == events_.size()) {
      auto event = device_->make_event();
      if (!event.ok()) return event.status();
      events_.push_back(*std::move(event));
    }
    const Event& ready = *events_[flights_.size()];
    void* data = sum;
    int type = kNcclF32;
    absl::Status status;
    if (wire_ != WireType::kF32) {
      const bool brain = wire_ == WireType::kBf16;
      data = narrow_.as<std::uint16_t>() + bucket.offset;
      type = brain ? kNcclBf16 : kNcclF16;
      status = brain ? narrow<Bf16>(bucket, sum, compute) : narrow<F16>(bucket, sum, compute);
    }
    if (status.ok()) status = compute.record(ready);
    if (!status.ok()) return status;
    const auto sequence = communicator_->all_reduce(data, bucket.count, type, ready);
    if (!sequence.ok()) return sequence.status();
    flights_.push_back({bucket, sum, *sequence});
    return absl::OkStatus();
  }

  absl::Status finish(Stream& compute) override {
    for (const Flight& flight : std::exchange(flights_, {})) {
      absl::Status status = communicator_->join(compute, flight.sequence);
      if (status.ok() && wire_ == WireType::kBf16) status = widen<Bf16>(flight, compute);
      if (status.ok() && wire_ == WireType::kF16) status = widen<F16>(flight, compute);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status check() override { return communicator_->status(); }
  std::uint64_t fingerprint() const override { return communicator_->fingerprint(); }
  absl::Status close() override { return communicator_->close(); }

 private:
  struct Flight {
    Bucket bucket;
    float* sum = nullptr;
    std::uint64_t sequence = 0;
  };
  template <class W>
  absl::Status narrow(const Bucket& bucket, const float* sum, Stream& compute) {
    return compute.launch<Cast<float, W>>(element_grid(bucket.count),
                                          {sum, narrow_.as<W>() + bucket.offset, bucket.count});
  }
  template <class W>
  absl::Status widen(const Flight& flight, Stream& compute) {
    const Bucket& bucket = flight.bucket;
    return compute.launch<Cast<W, float>>(
        element_grid(bucket.count), {narrow_.as<W>() + bucket.offset, flight.sum, bucket.count});
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<Communicator> communicator_;
  WireType wire_;
  Memory narrow_;  // the whole gradient in 16 bits
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<Flight> flights_;  // of this step
};

}  // namespace

absl::StatusOr<std::unique_ptr<GradientExchange>> make_nccl_exchange(
    std::shared_ptr<Device> device, std::unique_ptr<Communicator> communicator, WireType wire,
    const ExchangeRoom& room) {
  auto exchange = std::make_unique<NcclExchange>(std::move(device), std::move(communicator), wire);
  const absl::Status prepared = exchange->prepare(room.elements);
  if (!prepared.ok()) return prepared;
  return exchange;
}

}  // namespace muster::runtime::cuda
