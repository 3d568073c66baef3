// SPDX-License-Identifier: Apache-2.0
//
// Whole steps of GPT-2's 124 million parameters, 65,536 tokens each: how many tokens a second, what
// share of the device's matrix rate, where the time goes, and what an exchange of gradients adds
// that computing does not hide.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/gpu/directory_store.h"
#include "tests/gpu/stopwatch.h"
#include "tests/gpu/training.h"
#include "tests/gpu/zero_peer.h"
#include "worker_runtime/collectives/local.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

using Clock = std::chrono::steady_clock;

const GptConfig kGpt2{
    .n_layer = 12, .n_head = 12, .n_embd = 768, .n_ctx = 1024, .vocab_size = 50257};
const GptConfig kSmall{.n_layer = 1, .n_head = 1, .n_embd = 64, .n_ctx = 16, .vocab_size = 64};
constexpr std::int64_t kSamples = 64;  // of a step
constexpr int kWarmUp = 3;
constexpr int kTimed = 10;

enum class Way { kNone, kNccl, kStaged };

struct Times {
  double step = 0;  // seconds, medians
  double gradient = 0;
  double forward = 0;
  std::int64_t micro = 0;
  double first_loss = 0;
  double loss = 0;  // the last
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A token's, forward and backward: 6 N + 6 L C T.
double operations_a_token(const GptConfig& config) {
  double parameters = 0;
  for (const TensorInfo& tensor : flat_layout(config).tensors)
    parameters += static_cast<double>(tensor.count);
  return 6 * parameters + 6 * static_cast<double>(config.n_layer * config.n_embd * config.n_ctx);
}

class Steps {
 public:
  Steps(const Context& context, Opened opened)
      : context_(context),
        opened_(std::move(opened)),
        config_(context.on_fakes ? kSmall : kGpt2),
        samples_(context.on_fakes ? 4 : kSamples),
        master_(flat_layout(config_).size) {
    initialise(config_, flat_layout(config_), 1, master_);
  }

  const GptConfig& config() const { return config_; }
  double tokens() const { return static_cast<double>(samples_ * config_.n_ctx); }

  absl::StatusOr<Times> measure(Precision precision, Way way) {
    LocalGroup group(1, ++generation_);
    const auto alone = group.member(0);
    auto training = start(precision, way, *alone);
    if (!training.ok()) return training.status();
    auto times = time(**training);
    if (!times.ok()) return times;
    times->micro = micro_;
    const absl::Status closed = (*training)->close();
    if (!closed.ok()) return closed;
    return times;
  }

 private:
  // With the largest micro-batch that there is room for.
  absl::StatusOr<std::unique_ptr<Training>> start(Precision precision, Way way,
                                                  Collectives& group) {
    for (micro_ = samples_;; micro_ /= 2) {
      const TrainingPlan plan{.model = config_,
                              .precision = precision,
                              .micro = micro_,
                              .leaves = static_cast<std::uint64_t>(samples_ / micro_),
                              .scale_power = 12};
      auto training = Training::start(
          plan, opened_, group, [&](const ExchangeRoom& room) { return exchange(way, room); },
          master_);
      if (training.ok() || micro_ == 1 ||
          training.status().code() != absl::StatusCode::kResourceExhausted) {
        return training;
      }
    }
  }

  absl::StatusOr<std::unique_ptr<GradientExchange>> exchange(Way way, const ExchangeRoom& room) {
    if (way == Way::kNone) return make_no_exchange();
    if (way == Way::kStaged) {
      return make_staged_exchange(opened_.device, peer_, WireType::kF32, 0, room);
    }
    const auto nccl = context_.libraries.nccl();
    if (!nccl.ok()) return nccl.status();
    const std::string folder = context_.folder + "/" + std::to_string(generation_);
    std::filesystem::create_directory(folder);
    store_.emplace(folder);
    CommunicatorOptions options;
    options.generation = generation_;
    options.facts.host = "this";
    options.facts.capability = 90;
    options.facts.driver_cuda = opened_.device->facts().driver_version;
    options.facts.nccl = nccl->version;
    auto communicator = Communicator::connect(*nccl, opened_.device, *store_, options);
    if (!communicator.ok()) return communicator.status();
    return make_nccl_exchange(opened_.device, *std::move(communicator), WireType::kF32, room);
  }

  static absl::StatusOr<double> seconds_of(const std::function<absl::Status()>& call) {
    const Clock::time_point start = Clock::now();
    const absl::Status status = call();
    if (!status.ok()) return status;
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  absl::StatusOr<Times> time(Training& training) const {
    const int timed = context_.on_fakes ? 1 : kTimed;
    Times times;
    std::vector<double> steps;
    std::vector<double> gradients;
    std::vector<double> forwards;
    std::vector<double> losses;
    const auto step = [&] {
      const auto loss = training.step();
      if (!loss.ok()) return loss.status();
      if (times.first_loss == 0) times.first_loss = *loss;
      times.loss = *loss;
      return absl::OkStatus();
    };
    // A step waits for the gradient; its update runs beside the next step's beginning on the host.
    for (int i = 0; i < kWarmUp + timed; ++i) {
      const auto seconds = seconds_of(step);
      if (!seconds.ok()) return seconds.status();
      if (i >= kWarmUp) steps.push_back(*seconds);
    }
    for (int i = 0; i < 1 + timed; ++i) {
      const auto gradient = seconds_of([&] { return training.gradient(losses).status(); });
      if (!gradient.ok()) return gradient.status();
      const auto forward = seconds_of([&] { return training.forward().status(); });
      if (!forward.ok()) return forward.status();
      if (i == 0) continue;
      gradients.push_back(*gradient);
      forwards.push_back(*forward);
    }
    times.step = median(steps);
    times.gradient = median(gradients);
    times.forward = median(forwards);
    return times;
  }

  const Context& context_;
  Opened opened_;
  GptConfig config_;
  std::int64_t samples_;
  std::vector<float> master_;
  ZeroPeer peer_;
  std::optional<DirectoryStore> store_;
  std::int64_t micro_ = 1;
  std::int64_t generation_ = 0;
};

void report_step(const Context& context, const Steps& steps, const std::string& of,
                 const Times& times, double peak) {
  Report& report = *context.report;
  const double operations = operations_a_token(steps.config()) * steps.tokens() / times.step;
  const double forwards =
      static_cast<double>(context.on_fakes ? 4 : kSamples) / static_cast<double>(times.micro);
  report.figure(of + "tokens", steps.tokens() / times.step, "1/s", 0,
                "micro-batches of " + std::to_string(times.micro));
  report.figure(of + "step", times.step * 1e3, "ms");
  report.figure(of + "forward", times.forward * forwards * 1e3, "ms");
  report.figure(of + "forward, backward, norm", times.gradient * 1e3, "ms");
  report.figure(of + "update and the host's part", (times.step - times.gradient) * 1e3, "ms");
  report.figure(of + "model FLOPs beside the data sheet", operations / 1e12, "TFLOP/s",
                kNominalTeraflops);
  report.figure(of + "model FLOPs beside the measured", operations / 1e12, "TFLOP/s", peak / 1e12);
  report.check(of + "the loss is a number and falls",
               std::isfinite(times.loss) && times.loss < times.first_loss,
               "from " + std::to_string(times.first_loss) + " to " + std::to_string(times.loss));
}

}  // namespace

absl::Status measure_steps(const Context& context) {
  auto opened = open_device(context);
  if (!opened.ok()) return opened.status();
  auto stream = opened->device->make_stream();
  if (!stream.ok()) return stream.status();
  const auto peak = measure_product(context, *opened, **stream, Number::kBf16);
  if (!peak.ok()) return peak.status();
  Steps steps(context, *opened);
  double bare = 0;
  for (const Precision precision : {Precision::kBf16, Precision::kF16}) {
    const auto times = steps.measure(precision, Way::kNone);
    if (!times.ok()) return times.status();
    const std::string of = std::string(precision_name(precision)) + ": ";
    report_step(context, steps, of, *times, *peak);
    if (precision == Precision::kBf16) bare = times->step;
  }
  for (const Way way : {Way::kNccl, Way::kStaged}) {
    const auto times = steps.measure(Precision::kBf16, way);
    if (!times.ok()) return times.status();
    const std::string name =
        way == Way::kNccl ? "NCCL, one rank" : "staged, two ranks without a network";
    context.report->figure("bf16: exposed by " + name, (times->step - bare) * 1e3, "ms", 0,
                           "of a step of " + std::to_string(times->step * 1e3) + " ms");
  }
  return absl::OkStatus();
}

}  // namespace muster::runtime::cuda::gpu_check
