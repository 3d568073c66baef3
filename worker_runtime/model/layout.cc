// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <utility>

#include <absl/status/status.h>

#include "proto/base/check.h"
#include "worker_runtime/model/gpt.h"
#include "worker_runtime/numerics/philox.h"

namespace muster::runtime {
namespace {

constexpr std::size_t kPadding = 64;

// FNV-1a over bytes: part of the layout's meaning, so fixed here and not std::hash.
constexpr std::uint64_t kHashStart = 0xcbf29ce484222325U;
std::uint64_t hash_byte(std::uint64_t hash, std::uint8_t byte) {
  return (hash ^ byte) * 0x100000001b3U;
}
std::uint64_t hash_number(std::uint64_t hash, std::uint64_t number) {
  for (int i = 0; i < 8; ++i)
    hash = hash_byte(hash, static_cast<std::uint8_t>(number >> (8 * i)));
  return hash;
}
std::uint64_t hash_text(std::uint64_t hash, const std::string& text) {
  for (const char c : text)
    hash = hash_byte(hash, static_cast<std::uint8_t>(c));
  return hash_byte(hash, 0);
}

void append(FlatLayout& layout, std::string name, std::vector<std::int64_t> dims) {
  TensorInfo tensor;
  tensor.name = std::move(name);
  tensor.offset = layout.size;
  tensor.count = 1;
  for (const std::int64_t dim : dims)
    tensor.count *= static_cast<std::size_t>(dim);
  tensor.decay = dims.size() > 1;
  tensor.dims = std::move(dims);
  layout.size += (tensor.count + kPadding - 1) / kPadding * kPadding;
  layout.hash = hash_number(hash_text(layout.hash, tensor.name), tensor.offset);
  for (const std::int64_t dim : tensor.dims)
    layout.hash = hash_number(layout.hash, static_cast<std::uint64_t>(dim));
  layout.tensors.push_back(std::move(tensor));
}

void fill_normal(std::uint64_t seed, const TensorInfo& tensor, float deviation, float* out) {
  const std::uint64_t stream = hash_text(kHashStart, tensor.name);
  for (std::size_t i = 0; i < tensor.count; i += 4) {
    const numerics::Philox bits = numerics::philox(seed, i / 4, stream);
    const numerics::NormalPair a = numerics::normal_pair(bits.word[0], bits.word[1]);
    const numerics::NormalPair b = numerics::normal_pair(bits.word[2], bits.word[3]);
    const float four[4] = {a.first, a.second, b.first, b.second};
    for (std::size_t j = 0; j < 4 && i + j < tensor.count; ++j)
      out[i + j] = four[j] * deviation;
  }
}

}  // namespace

const TensorInfo* FlatLayout::find(const std::string& name) const {
  for (const TensorInfo& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

FlatLayout flat_layout(const GptConfig& config) {
  const std::int64_t c = config.n_embd;
  FlatLayout layout;
  layout.hash = kHashStart;
  append(layout, "ln_f.bias", {c});
  append(layout, "ln_f.weight", {c});
  for (std::int64_t l = config.n_layer - 1; l >= 0; --l) {
    const std::string h = "h." + std::to_string(l) + ".";
    append(layout, h + "mlp.c_proj.bias", {c});
    append(layout, h + "mlp.c_proj.weight", {4 * c, c});
    append(layout, h + "mlp.c_fc.bias", {4 * c});
    append(layout, h + "mlp.c_fc.weight", {c, 4 * c});
    append(layout, h + "ln_2.bias", {c});
    append(layout, h + "ln_2.weight", {c});
    append(layout, h + "attn.c_proj.bias", {c});
    append(layout, h + "attn.c_proj.weight", {c, c});
    append(layout, h + "attn.c_attn.bias", {3 * c});
    append(layout, h + "attn.c_attn.weight", {c, 3 * c});
    append(layout, h + "ln_1.bias", {c});
    append(layout, h + "ln_1.weight", {c});
  }
  append(layout, "wpe.weight", {config.n_ctx, c});
  append(layout, "wte.weight", {config.vocab_size, c});
  return layout;
}

void initialise(const GptConfig& config, const FlatLayout& layout, std::uint64_t seed,
                std::span<float> master) {
  MUSTER_CHECK(master.size() == layout.size);
  const float deviation = 0.02F;
  // Each layer adds two projections to the residual stream.
  const double additions = 2.0 * static_cast<double>(config.n_layer);
  const float residual = static_cast<float>(0.02 / std::sqrt(additions));
  for (float& value : master)
    value = 0;
  for (const TensorInfo& tensor : layout.tensors) {
    float* out = master.data() + tensor.offset;
    if (tensor.decay) {
      const bool projection = tensor.name.ends_with(".c_proj.weight");
      fill_normal(seed, tensor, projection ? residual : deviation, out);
    } else if (tensor.name.ends_with(".weight")) {
      for (std::size_t i = 0; i < tensor.count; ++i)
        out[i] = 1;
    }
  }
}

absl::Status check_gpt(const GptConfig& config, std::int64_t max_batch) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 24;
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"n_layer", config.n_layer}, {"n_head", config.n_head},         {"n_embd", config.n_embd},
      {"n_ctx", config.n_ctx},     {"vocab_size", config.vocab_size}, {"max_batch", max_batch}};
  for (const auto& [name, size] : sizes) {
    if (size >= 1 && size <= kLargest) continue;
    return absl::InvalidArgumentError(std::string(name) + " is " + std::to_string(size) +
                                      "; it must lie between 1 and " + std::to_string(kLargest));
  }
  if (config.n_embd % config.n_head != 0) {
    return absl::InvalidArgumentError("n_embd " + std::to_string(config.n_embd) +
                                      " is not a multiple of n_head " +
                                      std::to_string(config.n_head));
  }
  // Beyond this nothing fits into memory, and sizes stay far from overflow.
  const double width = static_cast<double>(config.n_embd);
  const double weights = static_cast<double>(config.n_layer) * 12 * width * width +
                         static_cast<double>(config.vocab_size + config.n_ctx) * width;
  const double activations = static_cast<double>(max_batch) * static_cast<double>(config.n_ctx) *
                             static_cast<double>(config.n_layer) * 16 * width;
  if (weights > 0x1p42 || activations > 0x1p42)
    return absl::InvalidArgumentError("n_layer, n_embd, vocab_size, n_ctx: the model is too large");
  return absl::OkStatus();
}

}  // namespace muster::runtime
