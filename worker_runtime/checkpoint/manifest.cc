// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/checkpoint/manifest.h"

#include <algorithm>
#include <map>
#include <set>

#include <absl/status/status.h>
#include <nlohmann/json.hpp>

#include "worker_runtime/data/digest.h"

namespace muster::runtime {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "muster-checkpoint";

json counters_json(const TrainCounters& c) {
  return {{"step", c.step},
          {"updates", c.updates},
          {"samples", c.samples},
          {"bad_steps", c.bad_steps},
          {"loss", c.loss},
          {"scaler",
           {{"scale", c.scaler.scale},
            {"iterations", c.scaler.iterations},
            {"last_overflow", c.scaler.last_overflow},
            {"hysteresis", c.scaler.hysteresis},
            {"clean_steps", c.clean_steps}}}};
}

TrainCounters counters_from(const json& j) {
  TrainCounters c;
  j.at("step").get_to(c.step);
  j.at("updates").get_to(c.updates);
  j.at("samples").get_to(c.samples);
  j.at("bad_steps").get_to(c.bad_steps);
  // JSON knows no NaN or infinity; a loss that was one is written as null.
  c.loss = j.at("loss").is_null() ? 0 : j.at("loss").get<double>();
  const json& scaler = j.at("scaler");
  scaler.at("scale").get_to(c.scaler.scale);
  scaler.at("iterations").get_to(c.scaler.iterations);
  scaler.at("last_overflow").get_to(c.scaler.last_overflow);
  scaler.at("hysteresis").get_to(c.scaler.hysteresis);
  scaler.at("clean_steps").get_to(c.clean_steps);
  return c;
}

// Digests are hexadecimal text: JSON readers elsewhere lose 64-bit numbers.
std::uint64_t hex_value(const json& j) {
  return std::stoull(j.get<std::string>(), nullptr, 16);
}

// No overlap, no gap, and every file named once: a stream that is not covered is no checkpoint.
absl::Status check_cover(const Manifest& manifest) {
  const std::uint64_t total = stream_count(manifest.tensors);
  std::map<std::string, std::vector<const Chunk*>> by_kind;
  std::set<std::string> names;
  for (const Chunk& chunk : manifest.chunks) {
    if (chunk.file.empty() || chunk.file.find('/') != std::string::npos ||
        !names.insert(chunk.file).second) {
      return absl::DataLossError("chunk file name '" + chunk.file +
                                 "' is not a plain, unique name");
    }
    by_kind[chunk.kind].push_back(&chunk);
  }
  for (const char* kind : kStreamKinds) {
    std::vector<const Chunk*>& chunks = by_kind[kind];
    std::sort(chunks.begin(), chunks.end(),
              [](const Chunk* a, const Chunk* b) { return a->first < b->first; });
    std::uint64_t next = 0;
    for (const Chunk* chunk : chunks) {
      if (chunk->first != next || chunk->count == 0 || chunk->count > total - next) {
        return absl::DataLossError(std::string("chunks of '") + kind + "' do not join at element " +
                                   std::to_string(next));
      }
      next += chunk->count;
    }
    if (next != total) {
      return absl::DataLossError(std::string("chunks of '") + kind + "' end at element " +
                                 std::to_string(next) + " of " + std::to_string(total));
    }
  }
  return absl::OkStatus();
}

absl::Status check_tensors(const Manifest& manifest) {
  std::uint64_t next = 0;
  for (const StoredTensor& tensor : manifest.tensors) {
    std::uint64_t elements = 1;
    for (const std::int64_t dim : tensor.dims) {
      if (dim < 1 || static_cast<std::uint64_t>(dim) > (std::uint64_t{1} << 40U) / elements) {
        return absl::DataLossError("tensor " + tensor.name + " has an impossible shape");
      }
      elements *= static_cast<std::uint64_t>(dim);
    }
    if (tensor.first != next || tensor.count != elements) {
      return absl::DataLossError("tensor " + tensor.name + " is not where it should be");
    }
    next += tensor.count;
  }
  return absl::OkStatus();
}

json manifest_json(const Manifest& m) {
  json tensors = json::array();
  for (const StoredTensor& t : m.tensors) {
    tensors.push_back({{"name", t.name},
                       {"dtype", "F32"},
                       {"dims", t.dims},
                       {"first", t.first},
                       {"count", t.count}});
  }
  json chunks = json::array();
  for (const Chunk& c : m.chunks) {
    chunks.push_back({{"file", c.file},
                      {"kind", c.kind},
                      {"first", c.first},
                      {"count", c.count},
                      {"xxh3_64", hex64(c.digest)}});
  }
  return {{"format", kFormat},
          {"version", kCheckpointVersion},
          {"run", m.run},
          {"generation", m.generation},
          {"world_size", m.world_size},
          {"counters", counters_json(m.counters)},
          {"data",
           {{"seed", m.seed},
            {"order_version", m.order_version},
            {"corpus_bytes", m.corpus_bytes},
            {"corpus_xxh3_64", hex64(m.corpus_digest)}}},
          {"config", json::parse(m.config)},
          {"config_xxh3_64", hex64(m.config_digest)},
          {"layout_hash", hex64(m.layout_hash)},
          {"param_hash", m.param_hash},
          {"build",
           {{"version", m.build.version}, {"compiler", m.build.compiler}, {"isa", m.build.isa}}},
          {"tensors", std::move(tensors)},
          {"chunks", std::move(chunks)}};
}

Manifest manifest_from(const json& j) {
  Manifest m;
  j.at("run").get_to(m.run);
  j.at("generation").get_to(m.generation);
  j.at("world_size").get_to(m.world_size);
  m.counters = counters_from(j.at("counters"));
  const json& data = j.at("data");
  data.at("seed").get_to(m.seed);
  data.at("order_version").get_to(m.order_version);
  data.at("corpus_bytes").get_to(m.corpus_bytes);
  m.corpus_digest = hex_value(data.at("corpus_xxh3_64"));
  m.config = j.at("config").dump();
  m.config_digest = hex_value(j.at("config_xxh3_64"));
  m.layout_hash = hex_value(j.at("layout_hash"));
  j.at("param_hash").get_to(m.param_hash);
  const json& build = j.at("build");
  build.at("version").get_to(m.build.version);
  build.at("compiler").get_to(m.build.compiler);
  build.at("isa").get_to(m.build.isa);
  for (const json& t : j.at("tensors")) {
    m.tensors.push_back({t.at("name").get<std::string>(),
                         t.at("dims").get<std::vector<std::int64_t>>(),
                         t.at("first").get<std::uint64_t>(), t.at("count").get<std::uint64_t>()});
  }
  for (const json& c : j.at("chunks")) {
    m.chunks.push_back({c.at("file").get<std::string>(), c.at("kind").get<std::string>(),
                        c.at("first").get<std::uint64_t>(), c.at("count").get<std::uint64_t>(),
                        hex_value(c.at("xxh3_64"))});
  }
  return m;
}

// The digest is of the document without it, as dumped: object keys are sorted, numbers shortest.
absl::Status check_self(json& document) {
  if (!document.is_object() || document.value("format", "") != kFormat) {
    return absl::DataLossError("not a checkpoint manifest");
  }
  if (document.at("version") != kCheckpointVersion) {
    return absl::UnimplementedError("format version " + document.at("version").dump() +
                                    "; this program reads " + std::to_string(kCheckpointVersion));
  }
  const std::string claimed = document.at("manifest_xxh3_64").get<std::string>();
  document.erase("manifest_xxh3_64");
  if (hex64(digest64(document.dump())) != claimed) {
    return absl::DataLossError("its digest does not match");
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<StoredTensor> stored_tensors(const FlatLayout& layout) {
  std::vector<StoredTensor> tensors;
  std::uint64_t next = 0;
  for (const TensorInfo& tensor : layout.tensors) {
    tensors.push_back({tensor.name, tensor.dims, next, tensor.count});
    next += tensor.count;
  }
  return tensors;
}

std::uint64_t stream_count(const std::vector<StoredTensor>& tensors) {
  return tensors.empty() ? 0 : tensors.back().first + tensors.back().count;
}

std::string manifest_text(const Manifest& manifest) {
  json document = manifest_json(manifest);
  document["manifest_xxh3_64"] = hex64(digest64(document.dump()));
  return document.dump(1) + "\n";
}

absl::StatusOr<Manifest> parse_manifest(const std::string& text) {
  try {
    json document = json::parse(text);
    const absl::Status self = check_self(document);
    if (!self.ok()) return self;
    Manifest manifest = manifest_from(document);
    for (const absl::Status& status : {check_tensors(manifest), check_cover(manifest)}) {
      if (!status.ok()) return status;
    }
    return manifest;
  } catch (const std::exception& error) {  // nlohmann_json's, and std::stoull's
    return absl::DataLossError(error.what());
  }
}

}  // namespace muster::runtime
