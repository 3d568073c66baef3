// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <stdexcept>
#include <system_error>

#include <absl/status/status.h>
#include <nlohmann/json.hpp>

#include "proto/base/json_mistake.h"
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

// Thrown where a manifest does not read; only parse_manifest() sees it.
struct Unreadable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

const json& need(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end()) {
    throw Unreadable("there is no \"" + std::string(key) + "\"");
  }
  return *found;
}

TrainCounters counters_from(const json& j) {
  TrainCounters c;
  need(j, "step").get_to(c.step);
  need(j, "updates").get_to(c.updates);
  need(j, "samples").get_to(c.samples);
  need(j, "bad_steps").get_to(c.bad_steps);
  // JSON knows no NaN or infinity; a loss that was one is written as null.
  c.loss = need(j, "loss").is_null() ? 0 : need(j, "loss").get<double>();
  const json& scaler = need(j, "scaler");
  need(scaler, "scale").get_to(c.scaler.scale);
  need(scaler, "iterations").get_to(c.scaler.iterations);
  need(scaler, "last_overflow").get_to(c.scaler.last_overflow);
  need(scaler, "hysteresis").get_to(c.scaler.hysteresis);
  need(scaler, "clean_steps").get_to(c.clean_steps);
  return c;
}

// Digests are hexadecimal text: JSON readers elsewhere lose 64-bit numbers.
std::uint64_t hex_value(const json& j) {
  const auto text = j.get<std::string>();
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw Unreadable("'" + text + "' is not a hexadecimal digest");
  }
  return value;
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
          {"products", m.products},
          {"tensors", std::move(tensors)},
          {"chunks", std::move(chunks)}};
}

Manifest manifest_from(const json& j) {
  Manifest m;
  need(j, "run").get_to(m.run);
  need(j, "generation").get_to(m.generation);
  need(j, "world_size").get_to(m.world_size);
  m.counters = counters_from(need(j, "counters"));
  const json& data = need(j, "data");
  need(data, "seed").get_to(m.seed);
  need(data, "order_version").get_to(m.order_version);
  need(data, "corpus_bytes").get_to(m.corpus_bytes);
  m.corpus_digest = hex_value(need(data, "corpus_xxh3_64"));
  m.config = need(j, "config").dump();
  m.config_digest = hex_value(need(j, "config_xxh3_64"));
  m.layout_hash = hex_value(need(j, "layout_hash"));
  need(j, "param_hash").get_to(m.param_hash);
  const json& build = need(j, "build");
  need(build, "version").get_to(m.build.version);
  need(build, "compiler").get_to(m.build.compiler);
  need(build, "isa").get_to(m.build.isa);
  m.products = j.value("products", "");  // not in the first checkpoints
  for (const json& t : need(j, "tensors")) {
    m.tensors.push_back(
        {need(t, "name").get<std::string>(), need(t, "dims").get<std::vector<std::int64_t>>(),
         need(t, "first").get<std::uint64_t>(), need(t, "count").get<std::uint64_t>()});
  }
  for (const json& c : need(j, "chunks")) {
    m.chunks.push_back({need(c, "file").get<std::string>(), need(c, "kind").get<std::string>(),
                        need(c, "first").get<std::uint64_t>(),
                        need(c, "count").get<std::uint64_t>(), hex_value(need(c, "xxh3_64"))});
  }
  return m;
}

// The digest is of the document without it, as dumped: object keys are sorted, numbers shortest.
absl::Status check_self(json& document) {
  if (!document.is_object() || document.value("format", "") != kFormat) {
    return absl::DataLossError("not a checkpoint manifest");
  }
  if (need(document, "version") != kCheckpointVersion) {
    return absl::UnimplementedError("format version " + need(document, "version").dump() +
                                    "; this program reads " + std::to_string(kCheckpointVersion));
  }
  const std::string claimed = need(document, "manifest_xxh3_64").get<std::string>();
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
  const std::string mistake = json_mistake(text);
  if (!mistake.empty()) return absl::DataLossError(mistake);
  try {
    json document = json::parse(text);
    const absl::Status self = check_self(document);
    if (!self.ok()) return self;
    Manifest manifest = manifest_from(document);
    for (const absl::Status& status : {check_tensors(manifest), check_cover(manifest)}) {
      if (!status.ok()) return status;
    }
    return manifest;
  } catch (const Unreadable& error) {
    return absl::DataLossError(error.what());
  } catch (const json::exception&) {
    return absl::DataLossError("an entry has another type than in any manifest");
  }
}

}  // namespace muster::runtime
