// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/train/metrics.h"

#include <nlohmann/json.hpp>

namespace muster::runtime {
namespace {

// Keys in the order written, for people who watch.
using Line = nlohmann::ordered_json;
constexpr int kSchema = 1;

}  // namespace

std::string step_line(const StepLine& line) {
  return Line{{"schema", kSchema},
              {"step", line.step},
              {"samples", line.samples},
              {"loss", line.loss},
              {"lr", line.lr},
              {"grad_norm", line.grad_norm},
              {"loss_scale", line.loss_scale},
              {"skipped", line.skipped},
              {"tokens_per_s", line.tokens_per_s},
              {"step_ms", line.step_ms},
              {"generation", line.generation},
              {"world_size", line.world_size}}
      .dump();
}

std::string eval_line(std::uint64_t step, std::uint64_t samples, double loss, std::uint64_t tokens,
                      double eval_ms) {
  return Line{{"schema", kSchema}, {"step", step},          {"samples", samples},
              {"eval_loss", loss}, {"eval_tokens", tokens}, {"eval_ms", eval_ms}}
      .dump();
}

std::string done_line(const TrainCounters& counters, const std::string& param_hash) {
  return Line{{"schema", kSchema},           {"done", true},
              {"step", counters.step},       {"updates", counters.updates},
              {"samples", counters.samples}, {"loss", counters.loss},
              {"param_hash", param_hash}}
      .dump();
}

std::string stopped_line(const TrainCounters& counters, bool saved) {
  return Line{{"schema", kSchema},
              {"stopped", true},
              {"step", counters.step},
              {"samples", counters.samples},
              {"saved", saved}}
      .dump();
}

}  // namespace muster::runtime
