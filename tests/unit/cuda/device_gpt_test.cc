// SPDX-License-Identifier: Apache-2.0
//
// The model on a device, through the fake driver, against the CPU's: losses and every parameter's
// gradient within the format's tolerance, the same bits at any pace of the driver, and no memory
// beyond what was reserved at the start.
#include "worker_runtime/cuda/model/device_gpt.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/fake_cuda/blas.h"
#include "tests/support/fake_cuda/driver.h"
#include "tests/unit/numerics/random.h"

namespace muster::runtime::cuda {
namespace {

using Pace = FakeDriver::Pace;

constexpr float kScale = 64;

struct Batch {
  std::vector<std::int32_t> tokens;
  std::int64_t size, time;
};
Batch batch_of(const GptConfig& config, std::int64_t size, std::int64_t time) {
  return {random_tokens(static_cast<std::size_t>(size * (time + 1)), 5, config.vocab_size), size,
          time};
}

std::vector<float> masters(const GptConfig& config) {
  const FlatLayout layout = flat_layout(config);
  std::vector<float> values(layout.size);
  initialise(config, layout, 7, values);
  // Biases and LayerNorm weights that do something.
  const auto noise = random_values<float>(layout.size, 11, 0.02F);
  for (const TensorInfo& tensor : layout.tensors) {
    for (std::size_t i = tensor.offset; i < tensor.offset + tensor.count; ++i)
      values[i] += noise[i];
  }
  return values;
}

struct Result {
  double loss = 0;
  std::vector<float> gradients;
};

Result on_device(const GptConfig& config, Precision precision, const Batch& batch, Pace pace,
                 int runs = 1) {
  FakeDriver driver({.pace = pace, .seed = 3});
  Result result;
  {
    const auto device = *Device::open(driver.api(), 0, FakeDriver::images());
    auto model = make_device_gpt(config, precision, batch.size, device, fake_blas());
    INFO(model.status().ToString());
    REQUIRE(model.ok());
    const std::size_t reserved = driver.alive();
    const std::vector<float> master = masters(config);
    for (int i = 0; i < runs; ++i) {
      REQUIRE((*model)->load_weights(master).ok());
      const auto loss = (*model)->forward_backward(batch.tokens, batch.size, batch.time, kScale);
      INFO(loss.status().ToString());
      REQUIRE(loss.ok());
      result.loss = *loss;
    }
    CHECK(driver.alive() == reserved);
    result.gradients.resize(master.size());
    Stream& stream = (*model)->stream();
    REQUIRE(stream
                .copy_to_host(result.gradients.data(), (*model)->gradients(),
                              result.gradients.size() * sizeof(float))
                .ok());
    REQUIRE(stream.synchronize().ok());
    // Without a backward pass the loss is the same.
    CHECK(*(*model)->forward(batch.tokens, batch.size, batch.time) == result.loss);
  }
  CHECK(driver.alive() == 0);
  CHECK(fake_blas_alive() == 0);
  return result;
}

Result on_cpu(const GptConfig& config, Precision precision, const Batch& batch) {
  auto model = *make_gpt(config, precision, batch.size);
  const std::vector<float> master = masters(config);
  model->load_weights(master);
  Result result;
  result.gradients.resize(master.size());
  result.loss =
      model->forward_backward(batch.tokens, batch.size, batch.time, kScale, result.gradients);
  return result;
}

double norm(const std::vector<float>& values, const TensorInfo& tensor) {
  double sum = 0;
  for (std::size_t i = tensor.offset; i < tensor.offset + tensor.count; ++i)
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return std::sqrt(sum);
}

// Losses within training-design.md's bounds; each tensor's gradient within `bound` of its norm:
// a few roundings to the format on the way through the layers.
void compare(const GptConfig& config, Precision precision, const Batch& batch, double loss_bound,
             double bound) {
  const Result want = on_cpu(config, precision, batch);
  const Result got = on_device(config, precision, batch, Pace::kLazy);
  CHECK(std::abs(got.loss - want.loss) <= loss_bound * want.loss);
  for (const TensorInfo& tensor : flat_layout(config).tensors) {
    CAPTURE(tensor.name);
    std::vector<float> difference(want.gradients.size());
    for (std::size_t i = 0; i < difference.size(); ++i)
      difference[i] = got.gradients[i] - want.gradients[i];
    CHECK(norm(difference, tensor) <= bound * norm(want.gradients, tensor));
  }
}

const GptConfig kSmall{.n_layer = 2, .n_head = 2, .n_embd = 24, .n_ctx = 21, .vocab_size = 37};
// Head size 64: tensor-core attention.
const GptConfig kTensor{.n_layer = 1, .n_head = 2, .n_embd = 128, .n_ctx = 70, .vocab_size = 65};

}  // namespace

TEST_CASE("the model on a device agrees with the CPU's") {
  const Batch batch = batch_of(kSmall, 3, 17);
  compare(kSmall, Precision::kF32, batch, 1e-6, 2e-5);
  compare(kSmall, Precision::kBf16, batch, 2e-3, 3e-2);
  compare(kSmall, Precision::kF16, batch, 3e-4, 4e-3);
}

TEST_CASE("with attention on tensor cores too") {
  const Batch batch = batch_of(kTensor, 2, 70);
  compare(kTensor, Precision::kBf16, batch, 2e-3, 3e-2);
  compare(kTensor, Precision::kF16, batch, 3e-4, 4e-3);
}

TEST_CASE("the same bits at any pace, and again on the same object") {
  const Batch batch = batch_of(kSmall, 2, 21);
  const Result lazy = on_device(kSmall, Precision::kBf16, batch, Pace::kLazy);
  for (const Pace pace : {Pace::kEager, Pace::kRandom}) {
    const Result other = on_device(kSmall, Precision::kBf16, batch, pace, 2);
    CHECK(other.loss == lazy.loss);
    CHECK(same_bits(other.gradients, lazy.gradients));
  }
}

TEST_CASE("micro-batches that are replayed from graphs have the bits of those that are not") {
  const FlatLayout layout = flat_layout(kSmall);
  const std::vector<float> master = masters(kSmall);
  struct Outcome {
    std::vector<double> losses;
    std::vector<std::vector<float>> gradients;
    std::vector<std::size_t> ends;  // that were told of the last
    bool operator==(const Outcome&) const = default;
  };
  const auto run = [&](bool graphs, Pace pace) {
    FakeDriver driver({.pace = pace});
    const auto device = *Device::open(driver.api(), 0, FakeDriver::images());
    auto model = *make_device_gpt(kSmall, Precision::kBf16, 3, device, fake_blas());
    Stream& stream = model->stream();
    const Memory loss = *device->allocate(sizeof(double));
    REQUIRE(model->load_weights(master).ok());
    const std::size_t stops[] = {1, layout.size};
    if (graphs) REQUIRE(model->use_graphs(stops).ok());
    Outcome outcome;
    for (const std::int64_t time : {21, 21, 17, 21}) {  // 17: too short for the graphs
      const auto seed = outcome.losses.size();
      const auto tokens =
          random_tokens(static_cast<std::size_t>(3 * (time + 1)), seed, kSmall.vocab_size);
      outcome.ends.clear();
      const auto ready = [&](std::size_t end) {
        outcome.ends.push_back(end);
        return absl::OkStatus();
      };
      REQUIRE(model
                  ->queue_backward(tokens, 3, time, static_cast<float>(8 << seed),
                                   loss.as<double>(), ready)
                  .ok());
      std::vector<float>& gradient = outcome.gradients.emplace_back(layout.size);
      REQUIRE(stream.copy_to_host(gradient.data(), model->gradients(), 4 * layout.size).ok());
      REQUIRE(stream.copy_to_host(&outcome.losses.emplace_back(), loss.data(), 8).ok());
      REQUIRE(stream.synchronize().ok());
    }
    const std::vector<std::string> log = driver.log();
    const auto replayed = std::count_if(log.begin(), log.end(), [](const std::string& line) {
      return line.find("graph of ") != std::string::npos;
    });
    CHECK(replayed == (graphs ? 6 : 0));
    CHECK(outcome.ends.size() == (graphs ? 2 : 4));
    CHECK(outcome.ends.back() == layout.size);
    outcome.ends.clear();
    return outcome;
  };
  const Outcome eager = run(false, Pace::kLazy);
  for (const Pace pace : {Pace::kEager, Pace::kLazy, Pace::kRandom})
    CHECK((run(true, pace) == eager));
}

TEST_CASE("a device without room for the model says how much was wanted") {
  FakeDriver driver({.memory = std::size_t{40} << 20U});
  const auto device = *Device::open(driver.api(), 0, FakeDriver::images());
  GptConfig config = kSmall;
  config.n_ctx = 1024;
  config.n_embd = 256;
  const auto model = make_device_gpt(config, Precision::kF32, 4, device, fake_blas());
  CHECK(model.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(model.status().message().find("the model and a micro-batch of 4: cuMemAlloc of ") == 0);
  config.n_head = 3;
  CHECK(make_device_gpt(config, Precision::kF32, 4, device, fake_blas()).status().message() ==
        "n_embd 256 is not a multiple of n_head 3");
}

}  // namespace muster::runtime::cuda
