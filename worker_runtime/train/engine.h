// SPDX-License-Identifier: Apache-2.0
//
// What computes a rank's share of a step and keeps its state: model, gradient, masters and
// moments, on the CPU or on a device. The training loop (training_run.h) decides; an engine only
// computes, the same on every rank.
//
// Errors: a collective's keep their code (collectives.h: kUnavailable, kFailedPrecondition,
// kDeadlineExceeded); everything else is the device's.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker_runtime/checkpoint/train_tensors.h"
#include "worker_runtime/collectives/ops.h"
#include "worker_runtime/model/gpt.h"
#include "worker_runtime/numerics/adamw.h"
#include "worker_runtime/optim/optimizer.h"
#include "worker_runtime/train/config.h"

namespace muster::runtime {

// The elements of the norm blocks (numerics::kNormBlock) that a rank looks at.
struct BlockRange {
  std::size_t offset = 0;
  std::size_t count = 0;
};
BlockRange own_blocks(std::size_t elements, int size, int rank);

// What this rank saw of the step's gradient. Tensors by their index in the layout, or kAllFinite.
struct GradientFacts {
  std::uint64_t own_bad = kAllFinite;  // first with a non-finite number before the sum over ranks
  std::uint64_t sum_bad = kAllFinite;  // … in this rank's blocks of the sum
  std::vector<double> norm_partials;   // FP64 squared norms of these blocks
};

class Engine {
 public:
  virtual ~Engine() = default;

  // Takes over the state to start from; (layout.size) each.
  virtual absl::Status load(TrainTensors tensors) = 0;

  // (batch, n_ctx + 1) tokens of micro-batch `leaf` of the step; valid until the next call.
  using Tokens = std::function<std::span<const std::int32_t>(std::uint64_t leaf)>;
  // Forward and backward of the micro-batches of `mine`, in order, and the sum of their gradients
  // over all ranks. Appends their loss sums to `losses`. Every rank calls it in every step, also
  // with nothing to compute.
  virtual absl::StatusOr<GradientFacts> gradient(LeafRange mine, std::uint64_t leaf_count,
                                                 const Tokens& tokens, float gradient_scale,
                                                 std::vector<double>& losses) = 0;
  // One AdamW update with that sum; see adamw_step().
  virtual absl::Status apply(const AdamWOptions& options, std::uint64_t update,
                             double gradient_factor) = 0;

  // The sum of token losses of (batch, n_ctx + 1) tokens.
  virtual absl::StatusOr<double> forward(std::span<const std::int32_t> tokens,
                                         std::int64_t batch) = 0;

  // The state in host memory, valid until the next apply().
  virtual absl::StatusOr<std::span<const float>> master() = 0;
  virtual absl::StatusOr<const TrainTensors*> tensors() = 0;

  // The library that multiplies matrices, its version, and a digest of the algorithms that it chose
  // for a training step: bits depend on them. Empty: the build says it all.
  virtual std::string products() const { return {}; }

  // What must be equal on all ranks besides the state: the collectives it has run, if they are
  // not the group's.
  virtual std::uint64_t fingerprint() const { return 0; }
  // Ends what it shares with other ranks, together with them; after the last step.
  virtual absl::Status close() { return absl::OkStatus(); }
};

struct EngineRequest {
  const GptConfig& model;
  Precision precision = Precision::kF32;
  std::int64_t micro = 1;  // samples of a micro-batch
  const FlatLayout& layout;
  const ParallelConfig& parallel;
  Collectives& group;
  // Seam for tests: sees, and may spoil, a micro-batch's gradient (layout.size).
  std::function<void(std::span<float>)> after_backward;
  std::function<void(const std::string&)> note = {};  // one line for people
};

// References in the request must outlive the engine. kInvalidArgument: the configuration's fault.
using EngineMaker = std::function<absl::StatusOr<std::unique_ptr<Engine>>(const EngineRequest&)>;

absl::StatusOr<std::unique_ptr<Engine>> make_cpu_engine(const EngineRequest& request);

// parallel.wire_dtype.
WireType wire_type(const ParallelConfig& parallel);

}  // namespace muster::runtime
