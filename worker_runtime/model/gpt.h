// SPDX-License-Identifier: Apache-2.0
//
// A GPT-2 style decoder: learned positions, pre-LayerNorm, causal attention, GELU (tanh form)
// MLP, output head tied to the token embedding. The logical flat layout of its parameters is
// part of the checkpoint's meaning and does not depend on the world size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace muster::runtime {

struct GptConfig {
  std::int64_t n_layer = 4;
  std::int64_t n_head = 4;
  std::int64_t n_embd = 128;
  std::int64_t n_ctx = 128;
  std::int64_t vocab_size = 256;
  bool operator==(const GptConfig&) const = default;
};

// Number format of weights copies, residual stream, activations and their gradients.
enum class Precision : std::uint8_t { kF32, kBf16, kF16 };

struct TensorInfo {
  std::string name;  // "h.0.attn.c_attn.weight", Conv1D stored [in, out]
  std::vector<std::int64_t> dims;
  std::size_t offset = 0;  // elements, in the flat layout; a multiple of 64
  std::size_t count = 0;   // elements, unpadded
  bool decay = false;      // weight decay applies (not to 1-D tensors)
};

// Parameters in reverse order of use, each padded to 64 elements; wte (tied) is last.
struct FlatLayout {
  std::vector<TensorInfo> tensors;
  std::size_t size = 0;    // elements, padded
  std::uint64_t hash = 0;  // of names, dims and offsets
  const TensorInfo* find(const std::string& name) const;
};
FlatLayout flat_layout(const GptConfig& config);

// Initialises `master` (layout.size f32; padding set to 0): N(0, 0.02), residual projections
// divided by sqrt(2 L), biases 0, LayerNorm weights 1. Philox keyed by (seed, tensor name).
void initialise(const GptConfig& config, const FlatLayout& layout, std::uint64_t seed,
                std::span<float> master);

// kInvalidArgument naming the field, for shapes that make no model (n_embd not a multiple of
// n_head, a size below 1) or one beyond all memory.
absl::Status check_gpt(const GptConfig& config, std::int64_t max_batch);

// One model on the CPU, one compute thread. Owns activations for (batch, n_ctx).
// Not thread-safe; several instances in one process are independent.
class Gpt {
 public:
  virtual ~Gpt() = default;

  // Re-derives the working copy (16-bit or FP32) from the FP32 masters.
  virtual void load_weights(std::span<const float> master) = 0;

  // One micro-batch: tokens (batch, time + 1) row-major, token t predicts token t + 1.
  // Adds d(sum of token losses * gradient_scale)/d(parameter) to `gradients` (layout.size f32)
  // and returns the unscaled sum of token losses (FP64). time <= n_ctx.
  virtual double forward_backward(std::span<const std::int32_t> tokens, std::int64_t batch,
                                  std::int64_t time, float gradient_scale,
                                  std::span<float> gradients) = 0;

  // The sum of token losses alone.
  virtual double forward(std::span<const std::int32_t> tokens, std::int64_t batch,
                         std::int64_t time) = 0;
};

// Errors: those of check_gpt. The matrix-product backend is oneDNN in f32.
absl::StatusOr<std::unique_ptr<Gpt>> make_gpt(const GptConfig& config, Precision precision,
                                              std::int64_t max_batch);

// What decides a step's bits besides inputs and configuration: the product library, its version
// and instruction set ("onednn 2.6.3 avx512_core_bf16, kernels avx512"; our own kernels give the
// same bits on all of theirs). For the manifest and for the comparison between ranks.
std::string gpt_signature();

}  // namespace muster::runtime
