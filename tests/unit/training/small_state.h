// SPDX-License-Identifier: Apache-2.0
//
// A layout of two tensors with padding between them, and state that differs by step.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "worker_runtime/checkpoint/checkpoint_store.h"

namespace muster::test {

inline runtime::FlatLayout small_layout() {
  runtime::FlatLayout layout;
  layout.tensors = {{"b", {5}, 0, 5, false}, {"a", {3, 4}, 64, 12, true}};
  layout.size = 128;
  layout.hash = 99;
  return layout;
}

inline runtime::TrainTensors small_tensors(float base) {
  const runtime::FlatLayout layout = small_layout();
  runtime::TrainTensors tensors;
  float next = base;
  for (std::vector<float>* stream : {&tensors.master, &tensors.m, &tensors.v}) {
    stream->assign(layout.size, 0.0F);
    for (const runtime::TensorInfo& tensor : layout.tensors) {
      for (std::size_t i = 0; i < tensor.count; ++i)
        (*stream)[tensor.offset + i] = next++;
    }
  }
  return tensors;
}

inline runtime::Manifest small_manifest(std::uint64_t step) {
  runtime::Manifest manifest;
  manifest.counters = {.step = step,
                       .updates = step - 1,
                       .samples = 32 * step,
                       .bad_steps = 1,
                       .loss = 2.5,
                       .scaler = {65536, step, 0, 2},
                       .clean_steps = 7};
  manifest.seed = 5;
  manifest.order_version = 1;
  manifest.config = R"({"steps":10})";
  manifest.build = {"0.1.0", "g++", "avx2"};
  manifest.products = "cublaslt 130000 0123456789abcdef";
  return manifest;
}

inline bool same(const runtime::TrainTensors& a, const runtime::TrainTensors& b) {
  return a.master == b.master && a.m == b.m && a.v == b.v;
}

struct Notes {
  std::vector<std::string> lines;
  runtime::CheckpointStore::Note sink() {
    return [this](const std::string& line) { lines.push_back(line); };
  }
  bool has(const std::string& word) const {
    for (const std::string& line : lines) {
      if (line.find(word) != std::string::npos) return true;
    }
    return false;
  }
};

inline runtime::CheckpointStore::Options small_options(const std::string& directory,
                                                       runtime::Fence fence = {"r", 0},
                                                       std::string nonce = "n0") {
  runtime::CheckpointStore::Options options;
  options.directory = directory;
  options.fence = std::move(fence);
  options.nonce = std::move(nonce);
  options.chunk_elements = 7;  // tensors straddle chunks
  options.write_bytes = 16;    // several writes a file
  return options;
}

}  // namespace muster::test
