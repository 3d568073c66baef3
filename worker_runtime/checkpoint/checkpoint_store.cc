// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/checkpoint/checkpoint_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/base/check.h"
#include "worker_runtime/checkpoint/param_hash.h"
#include "worker_runtime/checkpoint/step_name.h"
#include "worker_runtime/data/digest.h"

namespace muster::runtime {
namespace {

constexpr const char* kManifest = "manifest.json";

absl::Status data_loss(const std::string& path, const std::string& what) {
  return absl::DataLossError(path + ": " + what);
}

const TensorInfo* find_tensor(const FlatLayout& layout, std::string_view name) {
  const auto found = std::find_if(layout.tensors.begin(), layout.tensors.end(),
                                  [&](const TensorInfo& tensor) { return tensor.name == name; });
  return found == layout.tensors.end() ? nullptr : &*found;
}

absl::Status same_model(const std::string& path, const Manifest& manifest,
                        const FlatLayout& layout) {
  const auto other = [&](const std::string& what) {
    return absl::FailedPreconditionError(path + " is of another model: " + what);
  };
  if (manifest.tensors.size() != layout.tensors.size()) {
    return other(std::to_string(manifest.tensors.size()) + " tensors, this one has " +
                 std::to_string(layout.tensors.size()));
  }
  for (const StoredTensor& stored : manifest.tensors) {
    const TensorInfo* tensor = find_tensor(layout, stored.name);
    if (tensor == nullptr) return other("it has a tensor " + stored.name);
    if (tensor->dims != stored.dims) return other(stored.name + " has another shape");
  }
  return absl::OkStatus();
}

// Copies elements [first, first + size) of a stream to where its tensors lie in the layout.
void scatter(const Manifest& manifest, const FlatLayout& layout, std::uint64_t first,
             std::span<const std::byte> bytes, std::span<float> out) {
  const std::uint64_t last = first + bytes.size() / sizeof(float);
  for (const StoredTensor& stored : manifest.tensors) {
    const std::uint64_t begin = std::max(first, stored.first);
    const std::uint64_t end = std::min(last, stored.first + stored.count);
    if (begin >= end) continue;
    const TensorInfo* tensor = find_tensor(layout, stored.name);
    std::memcpy(out.data() + tensor->offset + (begin - stored.first),
                bytes.data() + (begin - first) * sizeof(float), (end - begin) * sizeof(float));
  }
}

std::vector<float>& stream_of(TrainTensors& tensors, std::string_view kind) {
  if (kind == kStreamKinds[0]) return tensors.master;
  return kind == kStreamKinds[1] ? tensors.m : tensors.v;
}

}  // namespace

bool CheckpointStore::is_incomplete(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsPermissionDenied(status);
}

CheckpointStore::CheckpointStore(FileSystem& files, Options options, Note note)
    : files_(files), options_(std::move(options)), note_(std::move(note)) {}

absl::Status CheckpointStore::open() {
  absl::Status status = files_.make_directories(options_.directory);
  if (status.ok()) {
    status = raise_fence(files_, options_.directory, options_.fence, options_.nonce);
  }
  if (!status.ok()) return status;
  const auto names = files_.list(options_.directory);
  if (!names.ok()) return names.status();
  // Whoever made these before the fence was ours cannot publish them any more.
  stale_.clear();
  for (const std::string& name : *names) {
    if (is_temporary(name)) stale_.push_back(name);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CheckpointStore::Found>> CheckpointStore::list() {
  const auto names = files_.list(options_.directory);
  if (!names.ok()) return names.status();
  std::vector<Found> found;
  for (const std::string& name : *names) {
    const auto step = parse_step_name(name);
    if (!step) continue;
    if (!step->suffix.empty()) {
      note_("ignoring " + path_of(name) + ": it was never finished or did not verify");
      continue;
    }
    const auto manifest = read_manifest(path_of(name));
    if (is_incomplete(manifest.status())) {
      note_("ignoring an incomplete checkpoint: " + std::string(manifest.status().message()));
      continue;
    }
    if (!manifest.ok()) return manifest.status();
    if (manifest->counters.step != step->step) {
      note_("ignoring " + path_of(name) + ": its manifest says step " +
            std::to_string(manifest->counters.step));
      continue;
    }
    found.push_back({step->step, manifest->run});
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.step > b.step; });
  return found;
}

absl::StatusOr<std::optional<LoadedCheckpoint>> CheckpointStore::load_newest(
    const FlatLayout& layout, std::optional<RunId> run) {
  const auto found = list();
  if (!found.ok()) return found.status();
  for (const Found& candidate : *found) {
    if (run && candidate.run != *run) continue;
    auto loaded = load(path_of(step_name(candidate.step)), layout);
    if (loaded.ok()) return std::optional(*std::move(loaded));
    if (!is_incomplete(loaded.status())) return loaded.status();
    note_("ignoring an incomplete checkpoint: " + std::string(loaded.status().message()));
  }
  return std::optional<LoadedCheckpoint>();
}

absl::StatusOr<LoadedCheckpoint> CheckpointStore::load(const std::string& path,
                                                       const FlatLayout& layout) {
  LoadedCheckpoint loaded;
  loaded.path = path;
  auto manifest = read_manifest(path);
  if (absl::IsNotFound(manifest.status())) return data_loss(path, "there is no manifest.json");
  if (!manifest.ok()) return manifest.status();
  loaded.manifest = *std::move(manifest);
  const absl::Status same = same_model(path, loaded.manifest, layout);
  if (!same.ok()) return same;
  for (const char* kind : kStreamKinds)
    stream_of(loaded.tensors, kind).assign(layout.size, 0.0F);
  for (const Chunk& chunk : loaded.manifest.chunks) {
    const auto bytes = read_chunk(path, chunk);
    if (!bytes.ok()) return bytes.status();
    scatter(loaded.manifest, layout, chunk.first, *bytes, stream_of(loaded.tensors, chunk.kind));
  }
  if (param_hash(layout, loaded.tensors.master) != loaded.manifest.param_hash) {
    return data_loss(path, "the parameters do not have the hash that the manifest names");
  }
  return loaded;
}

absl::StatusOr<Manifest> CheckpointStore::read_manifest(const std::string& path) {
  const std::string file = path + "/" + kManifest;
  const auto bytes = files_.read(file);
  if (!bytes.ok()) return bytes.status();
  std::string text(bytes->size(), '\0');
  std::memcpy(text.data(), bytes->data(), bytes->size());
  auto manifest = parse_manifest(text);
  if (manifest.ok()) return manifest;
  return absl::Status(manifest.status().code(),
                      file + ": " + std::string(manifest.status().message()));
}

absl::StatusOr<std::vector<std::byte>> CheckpointStore::read_chunk(const std::string& path,
                                                                   const Chunk& chunk) {
  const std::string file = path + "/" + chunk.file;
  auto bytes = files_.read(file);
  if (!bytes.ok()) return bytes.status();
  if (bytes->size() != chunk.count * sizeof(float)) {
    return data_loss(file, std::to_string(bytes->size()) + " bytes, the manifest says " +
                               std::to_string(chunk.count * sizeof(float)));
  }
  if (digest64(*bytes) != chunk.digest) return data_loss(file, "its checksum does not match");
  return bytes;
}

absl::Status CheckpointStore::verify(const std::string& path) {
  const auto manifest = read_manifest(path);
  if (!manifest.ok()) return manifest.status();
  for (const Chunk& chunk : manifest->chunks) {
    const auto bytes = read_chunk(path, chunk);
    if (!bytes.ok()) return bytes.status();
  }
  return absl::OkStatus();
}

std::string CheckpointStore::probe_path() const {
  return path_of("PROBE-" + options_.nonce);
}

absl::Status CheckpointStore::write_probe() {
  return write_file(probe_path(), std::as_bytes(std::span(options_.nonce)));
}

void CheckpointStore::remove_probe() {
  const absl::Status status = files_.remove_file(probe_path());
  if (!status.ok()) note_("a left-over: " + std::string(status.message()));
}

}  // namespace muster::runtime
