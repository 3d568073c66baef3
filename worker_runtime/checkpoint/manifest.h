// SPDX-License-Identifier: Apache-2.0
//
// What a checkpoint says about itself: manifest.json, written last. A step directory without a
// manifest that reads, checks out and covers every tensor is no checkpoint.
//
// State is kept as streams of FP32 numbers, one a kind (master, m, v): the parameters in layout
// order without padding. A stream is cut into chunk files; who wrote which does not matter, and
// the world size leaves no trace in them.
//
// Thread rule: values; pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "proto/base/ids.h"
#include "worker_runtime/model/gpt.h"
#include "worker_runtime/numerics/scaler.h"

namespace muster::runtime {

inline constexpr int kCheckpointVersion = 1;

// The streams of a checkpoint, in the order in which they are written.
inline constexpr const char* kStreamKinds[] = {"master", "m", "v"};

// One file: elements [first, first + count) of stream `kind`, little-endian FP32.
struct Chunk {
  std::string file;
  std::string kind;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  std::uint64_t digest = 0;  // digest64 of the file's bytes
  bool operator==(const Chunk&) const = default;
};

// One parameter: elements [first, first + count) of every stream.
struct StoredTensor {
  std::string name;
  std::vector<std::int64_t> dims;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  bool operator==(const StoredTensor&) const = default;
};

// Where training stands: everything that the next step depends on, but for the tensors.
struct TrainCounters {
  std::uint64_t step = 0;        // optimiser attempts
  std::uint64_t updates = 0;     // applied ones: Adam's t and the schedule's position
  std::uint64_t samples = 0;     // consumed: the data cursor
  std::uint64_t bad_steps = 0;   // skipped in a row (bf16, fp32)
  double loss = 0;               // of the last step
  ScalerState scaler;            // its `scale` is 1 where there is none
  std::int64_t clean_steps = 0;  // torch's growth tracker
  bool operator==(const TrainCounters&) const = default;
};

// What produced it. Equal bits are promised for equal values only.
struct BuildFacts {
  std::string version;
  std::string compiler;
  std::string isa;
  bool operator==(const BuildFacts&) const = default;
};

struct Manifest {
  RunId run;
  Generation generation = kNoGeneration;
  int world_size = 1;
  TrainCounters counters;
  std::uint64_t seed = 0;
  int order_version = 0;
  std::string config;  // the whole configuration, defaults included, as JSON
  std::uint64_t config_digest = 0;
  std::uint64_t corpus_bytes = 0;
  std::uint64_t corpus_digest = 0;
  std::uint64_t layout_hash = 0;
  std::string param_hash;
  BuildFacts build;
  std::string products;  // what the device's library multiplies by (Engine::products); empty: none
  std::vector<StoredTensor> tensors;
  std::vector<Chunk> chunks;
  bool operator==(const Manifest&) const = default;
};

// The tensors of a layout, unpadded, and their number of elements together.
std::vector<StoredTensor> stored_tensors(const FlatLayout& layout);
std::uint64_t stream_count(const std::vector<StoredTensor>& tensors);

// JSON text that ends with a newline and holds its own digest.
std::string manifest_text(const Manifest& manifest);

// kDataLoss, saying what is wrong: not JSON, digest differs, a field is missing or of another
// type, or the chunks do not cover every stream exactly. kUnimplemented: a newer version.
absl::StatusOr<Manifest> parse_manifest(const std::string& text);

}  // namespace muster::runtime
