// SPDX-License-Identifier: Apache-2.0
//
// The whole model against the host's executor: losses and every tensor's gradient of one
// micro-batch, the losses of some steps, and the same bits when it is run again. Here the device's
// matrix products and kernels work together, which the kernels' own trials do not show.
#include <cmath>
#include <string>
#include <vector>

#include "tests/gpu/training.h"
#include "worker_runtime/collectives/local.h"
#include "worker_runtime/cuda/model/device_gpt.h"
#include "worker_runtime/numerics/philox.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

// Tensor-core attention, and a head size that has none. On fakes smaller ones.
const GptConfig kModels[] = {
    {.n_layer = 2, .n_head = 2, .n_embd = 128, .n_ctx = 330, .vocab_size = 321},
    {.n_layer = 2, .n_head = 3, .n_embd = 72, .n_ctx = 33, .vocab_size = 100}};
const GptConfig kTinyModels[] = {
    {.n_layer = 1, .n_head = 1, .n_embd = 64, .n_ctx = 18, .vocab_size = 65},
    {.n_layer = 1, .n_head = 3, .n_embd = 36, .n_ctx = 17, .vocab_size = 50}};
constexpr std::int64_t kMicro = 2;

// What training-design.md allows between a device and a CPU, relative; gradients: of their norm.
struct Bounds {
  double loss, gradient;
};
Bounds bounds_of(Precision precision) {
  switch (precision) {
    case Precision::kBf16: return {1e-2, 5e-2};
    case Precision::kF16: return {1e-2, 1e-2};
    case Precision::kF32: break;
  }
  return {1e-4, 1e-4};
}

struct Once {
  double loss = 0;
  std::vector<float> gradients;
};

absl::StatusOr<Once> forward_backward(const Opened& opened, const GptConfig& config,
                                      Precision precision) {
  absl::Status status = opened.device->use();
  if (!status.ok()) return status;
  auto model = make_device_gpt(config, precision, kMicro, opened.device, opened.blas);
  if (!model.ok()) return model.status();
  const FlatLayout layout = flat_layout(config);
  std::vector<float> master(layout.size);
  initialise(config, layout, 5, master);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(kMicro * (config.n_ctx + 1)));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(numerics::philox(1, i, 2).word[0] %
                                          static_cast<std::uint32_t>(config.vocab_size));
  }
  status = (*model)->load_weights(master);
  if (!status.ok()) return status;
  const auto loss = (*model)->forward_backward(tokens, kMicro, config.n_ctx, 0.25F);
  if (!loss.ok()) return loss.status();
  Once once{*loss, std::vector<float>(layout.size)};
  Stream& stream = (*model)->stream();
  status = stream.copy_to_host(once.gradients.data(), (*model)->gradients(),
                               layout.size * sizeof(float));
  if (status.ok()) status = stream.synchronize();
  if (!status.ok()) return status;
  return once;
}

double norm(const std::vector<float>& values, const TensorInfo& tensor) {
  double sum = 0;
  for (std::size_t i = tensor.offset; i < tensor.offset + tensor.count; ++i)
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return std::sqrt(sum);
}

// "" or the tensor that is furthest off.
std::string worst_tensor(const GptConfig& config, const Once& got, const Once& want, double bound) {
  double worst = 0;
  std::string name;
  for (const TensorInfo& tensor : flat_layout(config).tensors) {
    std::vector<float> difference(want.gradients.size());
    for (std::size_t i = 0; i < difference.size(); ++i)
      difference[i] = got.gradients[i] - want.gradients[i];
    const double share = norm(difference, tensor) / norm(want.gradients, tensor);
    if (share <= worst) continue;  // not so for a NaN
    worst = share;
    name = tensor.name;
  }
  return worst <= bound ? "" : name + " is off by " + std::to_string(worst) + " of its norm";
}

struct Steps {
  std::vector<double> losses;
  std::uint64_t digest = 0;
};

absl::StatusOr<Steps> train(const Opened& opened, const GptConfig& config, Precision precision,
                            int count) {
  absl::Status status = opened.device->use();
  if (!status.ok()) return status;
  LocalGroup group(1, 0);
  const auto alone = group.member(0);
  auto training = Training::start({config, precision, kMicro, 2}, opened, *alone,
                                  [](const ExchangeRoom&) { return make_no_exchange(); });
  if (!training.ok()) return training.status();
  Steps steps;
  for (int i = 0; i < count; ++i) {
    const auto loss = (*training)->step();
    if (!loss.ok()) return loss.status();
    steps.losses.push_back(*loss);
  }
  const auto state = (*training)->state();
  if (!state.ok()) return state.status();
  steps.digest = digest(*state);
  return steps;
}

absl::Status check_one(const Context& context, const Opened& device, const Opened& reference,
                       const GptConfig& config, Precision precision) {
  Report& report = *context.report;
  const std::string name = std::string(precision_name(precision)) + ", head size " +
                           std::to_string(config.n_embd / config.n_head);
  const Bounds bounds = bounds_of(precision);
  const auto got = forward_backward(device, config, precision);
  if (!got.ok()) return got.status();
  const auto want = forward_backward(reference, config, precision);
  if (!want.ok()) return want.status();
  const double off = std::abs(got->loss - want->loss) / want->loss;
  report.check(name + ": the loss", off <= bounds.loss, "off by " + std::to_string(off));
  const std::string tensor = worst_tensor(config, *got, *want, bounds.gradient);
  report.check(name + ": every tensor's gradient", tensor.empty(), tensor);

  const int count = context.on_fakes ? 2 : 4;
  const auto steps = train(device, config, precision, count);
  if (!steps.ok()) return steps.status();
  const auto expected = train(reference, config, precision, count);
  if (!expected.ok()) return expected.status();
  double worst = 0;
  for (std::size_t i = 0; i < steps->losses.size(); ++i) {
    const double distance = std::abs(steps->losses[i] / expected->losses[i] - 1);
    worst = distance <= worst ? worst : distance;
  }
  report.check(name + ": the losses of some steps", worst <= bounds.loss,
               "off by " + std::to_string(worst));
  const auto again = train(device, config, precision, count);
  if (!again.ok()) return again.status();
  report.check(name + ": the same bits again", again->digest == steps->digest);
  return absl::OkStatus();
}

}  // namespace

absl::Status check_model(const Context& context) {
  auto device = open_device(context);
  if (!device.ok()) return device.status();
  auto reference = open_reference();
  if (!reference.ok()) return reference.status();
  for (const GptConfig& config : context.on_fakes ? kTinyModels : kModels) {
    for (const Precision precision : {Precision::kF32, Precision::kBf16, Precision::kF16}) {
      absl::Status status = check_one(context, *device, *reference, config, precision);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::runtime::cuda::gpu_check
