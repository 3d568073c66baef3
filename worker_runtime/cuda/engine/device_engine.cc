// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/engine/device_engine.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker_runtime/cuda/kernels/names.h"
#include "worker_runtime/cuda/model/arena.h"
#include "worker_runtime/cuda/model/device_gpt.h"
#include "worker_runtime/numerics/reduce.h"
#include "worker_runtime/train/gradients.h"

namespace muster::runtime::cuda {
namespace {

// Steps whose kernels are queued one by one, before graphs of them are made: libraries load what
// they need then, which no capture allows.
constexpr int kEagerSteps = 3;

constexpr std::size_t blocks_of(std::size_t elements) {
  return (elements + numerics::kNormBlock - 1) / numerics::kNormBlock;
}

BucketSizes bucket_sizes(const ParallelConfig& parallel) {
  const auto elements = [](double mebibytes) {
    return static_cast<std::size_t>(mebibytes * (1 << 20) / sizeof(float));
  };
  return {elements(parallel.first_bucket_mb), elements(parallel.bucket_mb)};
}

class DeviceEngine final : public Engine {
 public:
  DeviceEngine(const EngineRequest& request, std::shared_ptr<Device> device,
               std::unique_ptr<DeviceGpt> model)
      : request_(request),
        device_(std::move(device)),
        model_(std::move(model)),
        stream_(model_->stream()),
        size_(request.layout.size),
        products_(model_->signature()),
        buckets_(cut_buckets(request.layout, bucket_sizes(request.parallel))) {
    for (Arena::Array<float>* array : {&master_, &first_, &second_, &sum_}) {
      *array = arena_.reserve<float>(size_);
    }
    squares_ = arena_.reserve<double>(blocks_of(size_));
    bad_ = arena_.reserve<std::uint64_t>(blocks_of(size_));
    lowest_ = arena_.reserve<std::uint64_t>(1);
    update_ = arena_.reserve<UpdateState>(1);
    if (request.parallel.deterministic) {
      on_host_.emplace(request.layout, true, WireType::kF32);
      leaf_.resize(size_);
    }
  }

  absl::Status prepare(const ExchangeMaker& exchange) {
    absl::Status room = arena_.allocate(*device_);
    if (!room.ok() || on_host_) return room;
    ExchangeRoom all{size_, 0};
    for (const Bucket& bucket : buckets_)
      all.largest = std::max(all.largest, bucket.count);
    auto made = exchange(all);
    if (!made.ok()) return made.status();
    exchange_ = *std::move(made);
    return absl::OkStatus();
  }

  absl::Status load(TrainTensors tensors) override;
  absl::StatusOr<GradientFacts> gradient(LeafRange mine, std::uint64_t leaf_count,
                                         const Tokens& tokens, float gradient_scale,
                                         std::vector<double>& losses) override;
  absl::Status apply(const AdamWOptions& options, std::uint64_t update,
                     double gradient_factor) override;
  absl::StatusOr<double> forward(std::span<const std::int32_t> tokens,
                                 std::int64_t batch) override {
    return model_->forward(tokens, batch, request_.model.n_ctx);
  }
  absl::StatusOr<std::span<const float>> master() override;
  absl::StatusOr<const TrainTensors*> tensors() override;
  std::string products() const override { return products_; }
  std::uint64_t fingerprint() const override { return exchange_ ? exchange_->fingerprint() : 0; }
  absl::Status close() override { return exchange_ ? exchange_->close() : absl::OkStatus(); }

 private:
  void use_graphs();
  absl::Status backward(LeafRange mine, const Tokens& tokens, float gradient_scale);
  absl::Status leave(std::size_t end, bool add);
  absl::Status spoil();
  absl::StatusOr<GradientFacts> facts(std::vector<double>& losses);
  absl::StatusOr<GradientFacts> gradient_on_host(LeafRange mine, std::uint64_t leaf_count,
                                                 const Tokens& tokens, float gradient_scale,
                                                 std::vector<double>& losses);
  absl::Status fetch(std::vector<float>& to, const float* from);

  std::uint64_t tensor_of(std::uint64_t index) const {
    return index == kNoIndex ? kAllFinite : tensor_at(request_.layout, index);
  }

  EngineRequest request_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<DeviceGpt> model_;
  Stream& stream_;
  std::size_t size_;
  std::string products_;  // as chosen at the start
  std::vector<Bucket> buckets_;
  std::unique_ptr<GradientExchange> exchange_;  // none: deterministic

  Arena arena_;
  Arena::Array<float> master_, first_, second_;
  Arena::Array<float> sum_;       // this rank's gradient, then everybody's
  Arena::Array<double> squares_;  // a norm block
  Arena::Array<std::uint64_t> bad_, lowest_;
  Arena::Array<UpdateState> update_;
  Memory losses_;             // a double a micro-batch
  int steps_ = 0;             // begun with something to compute
  std::size_t left_ = 0;      // buckets of this step that were started
  std::size_t computed_ = 0;  // micro-batches of this step

  TrainTensors host_;  // room for what the host wants to see
  std::optional<GradientSum> on_host_;
  std::vector<float> leaf_;
};

absl::Status DeviceEngine::load(TrainTensors tensors) {
  host_ = std::move(tensors);
  const std::size_t bytes = size_ * sizeof(float);
  absl::Status status = stream_.copy_to_device(master_.data(), host_.master.data(), bytes);
  if (status.ok()) status = stream_.copy_to_device(first_.data(), host_.m.data(), bytes);
  if (status.ok()) status = stream_.copy_to_device(second_.data(), host_.v.data(), bytes);
  if (status.ok()) status = model_->load_device_weights(master_.data());
  return status.ok() ? stream_.synchronize() : status;
}

absl::StatusOr<GradientFacts> DeviceEngine::gradient(LeafRange mine, std::uint64_t leaf_count,
                                                     const Tokens& tokens, float gradient_scale,
                                                     std::vector<double>& losses) {
  if (mine.count > 0 && steps_++ == kEagerSteps) use_graphs();
  if (on_host_) return gradient_on_host(mine, leaf_count, tokens, gradient_scale, losses);
  if (losses_.size() < mine.count * sizeof(double)) {
    auto memory = device_->allocate(mine.count * sizeof(double));
    if (!memory.ok()) return memory.status();
    losses_ = *std::move(memory);
  }
  left_ = 0;
  computed_ = mine.count;
  absl::Status status = backward(mine, tokens, gradient_scale);
  if (status.ok()) status = leave(size_, false);  // without micro-batches nothing has left yet
  if (status.ok()) status = exchange_->finish(stream_);
  if (!status.ok()) return status;
  return facts(losses);
}

// Graphs end where a bucket leaves. Where the driver does not make them nothing changes but speed.
void DeviceEngine::use_graphs() {
  std::vector<std::size_t> stops;
  for (const Bucket& bucket : buckets_)
    stops.push_back(bucket.end());
  const absl::Status made = model_->use_graphs(stops);
  if (made.ok() || !request_.note) return;
  request_.note("without CUDA graphs, since " + std::string(made.message()));
}

// The sum grows micro-batch by micro-batch; the last one lets each bucket go as soon as it is
// complete.
absl::Status DeviceEngine::backward(LeafRange mine, const Tokens& tokens, float gradient_scale) {
  absl::Status status = stream_.zero(sum_.data(), size_ * sizeof(float));
  for (std::uint64_t i = 0; status.ok() && i < mine.count; ++i) {
    const bool last = i + 1 == mine.count;
    const bool overlaps = last && !request_.after_backward;
    const auto ready = [this](std::size_t end) { return leave(end, true); };
    status = model_->queue_backward(tokens(mine.first + i), request_.micro, request_.model.n_ctx,
                                    gradient_scale, losses_.as<double>() + i,
                                    overlaps ? DeviceGpt::Ready(ready) : DeviceGpt::Ready());
    if (status.ok() && request_.after_backward) status = spoil();
    if (!status.ok() || overlaps) continue;
    status = stream_.launch<Add>(element_grid(size_), {model_->gradients(), sum_.data(), size_});
  }
  return status;
}

// Lets the buckets below `end` go. `add`: the last micro-batch's part of them first.
absl::Status DeviceEngine::leave(std::size_t end, bool add) {
  absl::Status status;
  while (status.ok() && left_ < buckets_.size() && buckets_[left_].end() <= end) {
    const Bucket& bucket = buckets_[left_++];
    float* sum = sum_.data() + bucket.offset;
    if (add) {
      status = stream_.launch<Add>(element_grid(bucket.count),
                                   {model_->gradients() + bucket.offset, sum, bucket.count});
    }
    const std::size_t block = bucket.offset / numerics::kNormBlock;
    if (status.ok()) {
      status = stream_.launch<CheckNorm>(
          CheckNorm::grid(bucket.count),
          {sum, squares_.data() + block, bad_.data() + block, bucket.count, bucket.offset});
    }
    if (status.ok()) status = exchange_->start(bucket, sum, stream_);
  }
  return status;
}

// The test's hand in a micro-batch's gradient.
absl::Status DeviceEngine::spoil() {
  leaf_.resize(size_);
  absl::Status status = fetch(leaf_, model_->gradients());
  if (!status.ok()) return status;
  request_.after_backward(leaf_);
  return stream_.copy_to_device(model_->gradients(), leaf_.data(), size_ * sizeof(float));
}

// What this rank's own blocks tell, in its own gradient (bad_ as leave() queued it) and in the sum.
absl::StatusOr<GradientFacts> DeviceEngine::facts(std::vector<double>& losses) {
  const BlockRange own = own_blocks(size_, request_.group.size(), request_.group.rank());
  GradientFacts facts;
  facts.norm_partials.resize(blocks_of(own.count));
  std::vector<std::uint64_t> sum_bad(blocks_of(own.count), kNoIndex);
  std::uint64_t own_bad = kNoIndex;
  std::vector<double> values(computed_);
  absl::Status status = stream_.launch<LowestIndex>(
      LowestIndex::grid(), {bad_.data(), lowest_.data(), blocks_of(size_), 0});
  if (status.ok()) status = stream_.copy_to_host(&own_bad, lowest_.data(), sizeof(own_bad));
  if (status.ok() && own.count > 0) {
    status = stream_.launch<CheckNorm>(
        CheckNorm::grid(own.count),
        {sum_.data() + own.offset, squares_.data(), bad_.data(), own.count, own.offset});
    if (status.ok()) {
      status = stream_.copy_to_host(facts.norm_partials.data(), squares_.data(),
                                    facts.norm_partials.size() * sizeof(double));
    }
    if (status.ok()) {
      status =
          stream_.copy_to_host(sum_bad.data(), bad_.data(), sum_bad.size() * sizeof(std::uint64_t));
    }
  }
  if (status.ok() && computed_ > 0) {
    status = stream_.copy_to_host(values.data(), losses_.data(), computed_ * sizeof(double));
  }
  if (status.ok()) status = stream_.synchronize();
  if (status.ok()) status = exchange_->check();
  if (!status.ok()) return status;
  losses.insert(losses.end(), values.begin(), values.end());
  facts.own_bad = tensor_of(own_bad);
  for (const std::uint64_t index : sum_bad)
    facts.sum_bad = std::min(facts.sum_bad, tensor_of(index));
  return facts;
}

absl::StatusOr<GradientFacts> DeviceEngine::gradient_on_host(LeafRange mine,
                                                             std::uint64_t leaf_count,
                                                             const Tokens& tokens,
                                                             float gradient_scale,
                                                             std::vector<double>& losses) {
  absl::Status status;
  on_host_->compute(mine, [&](std::uint64_t leaf, std::span<float> into) {
    if (!status.ok()) return;
    const auto loss = model_->forward_backward(tokens(leaf), request_.micro, request_.model.n_ctx,
                                               gradient_scale);
    status = loss.status();
    if (status.ok()) status = fetch(leaf_, model_->gradients());
    if (!status.ok()) return;
    losses.push_back(*loss);
    if (request_.after_backward) request_.after_backward(leaf_);
    std::transform(into.begin(), into.end(), leaf_.begin(), into.begin(), std::plus<>());
  });
  if (!status.ok()) return status;
  GradientFacts facts;
  facts.own_bad = on_host_->first_bad();
  status = on_host_->reduce(request_.group, leaf_count);
  if (!status.ok()) return status;
  const BlockRange own = own_blocks(size_, request_.group.size(), request_.group.rank());
  const std::span<const float> part = on_host_->sum().subspan(own.offset, own.count);
  facts.sum_bad = first_non_finite(request_.layout, own.offset, part);
  facts.norm_partials = square_norm_partials(own.offset, part);
  status = stream_.copy_to_device(sum_.data(), on_host_->sum().data(), size_ * sizeof(float));
  if (!status.ok()) return status;
  return facts;
}

absl::Status DeviceEngine::apply(const AdamWOptions& options, std::uint64_t update,
                                 double gradient_factor) {
  UpdateState state;
  state.coefficients = numerics::adamw_coefficients(options, update, gradient_factor);
  state.update = update;
  const absl::Status sent = stream_.copy_to_device(update_.data(), &state, sizeof(state));
  if (!sent.ok()) return sent;
  return model_->adamw(update_.data(), sum_.data(),
                       {master_.data(), first_.data(), second_.data()});
}

absl::Status DeviceEngine::fetch(std::vector<float>& to, const float* from) {
  const absl::Status queued = stream_.copy_to_host(to.data(), from, size_ * sizeof(float));
  return queued.ok() ? stream_.synchronize() : queued;
}

absl::StatusOr<std::span<const float>> DeviceEngine::master() {
  const absl::Status fetched = fetch(host_.master, master_.data());
  if (!fetched.ok()) return fetched;
  return std::span<const float>(host_.master);
}

absl::StatusOr<const TrainTensors*> DeviceEngine::tensors() {
  absl::Status status = fetch(host_.master, master_.data());
  if (status.ok()) status = fetch(host_.m, first_.data());
  if (status.ok()) status = fetch(host_.v, second_.data());
  if (!status.ok()) return status;
  return &host_;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> make_device_engine(const EngineRequest& request,
                                                           std::shared_ptr<Device> device,
                                                           const BlasApi& blas,
                                                           const ExchangeMaker& exchange) {
  auto model = make_device_gpt(request.model, request.precision, request.micro, device, blas);
  if (!model.ok()) return model.status();
  auto engine = std::make_unique<DeviceEngine>(request, std::move(device), *std::move(model));
  const absl::Status prepared = engine->prepare(exchange);
  if (!prepared.ok()) return prepared;
  return engine;
}

}  // namespace muster::runtime::cuda
