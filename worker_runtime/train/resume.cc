// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/train/resume.h"

#include <array>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "worker_runtime/checkpoint/step_name.h"
#include "worker_runtime/collectives/ops.h"
#include "worker_runtime/data/order.h"

namespace muster::runtime {
namespace {

using Found = std::optional<LoadedCheckpoint>;

// A checkpoint, or the newest of a directory of them. Nothing is written there.
absl::StatusOr<Found> load_path(FileSystem& files, const std::string& path,
                                const FlatLayout& layout, const CheckpointStore::Note& note) {
  CheckpointStore reader(files, {.directory = path}, note);
  auto loaded = reader.load(path, layout);
  if (loaded.ok()) return Found(*std::move(loaded));
  if (!absl::IsDataLoss(loaded.status())) return loaded.status();
  const auto inside = files.list(path);
  if (inside.ok() && !files.read(path + "/manifest.json").ok()) {
    auto newest = reader.load_newest(layout);
    if (!newest.ok() || newest->has_value()) return newest;
  }
  return absl::FailedPreconditionError("--resume: no complete checkpoint: " +
                                       std::string(loaded.status().message()));
}

// Checkpoints ahead of the start that this run did not make: an existing step is never replaced,
// so this run's own would be thrown away, and a restart would take the wrong ones.
absl::Status nothing_ahead(CheckpointStore& store, const RunId& run, std::uint64_t start) {
  const auto found = store.list();
  if (!found.ok()) return found.status();
  for (const CheckpointStore::Found& one : *found) {
    if (one.run == run || one.step <= start) continue;
    return absl::FailedPreconditionError(
        "--resume starts at step " + std::to_string(start) + ", but checkpoint.dir holds " +
        step_name(one.step) + " of run " + one.run + ": use another directory or move it away");
  }
  return absl::OkStatus();
}

absl::StatusOr<nlohmann::json> part_of(const std::string& config, const char* key) {
  const auto document = nlohmann::json::parse(config, nullptr, false);
  if (!document.is_object()) return absl::DataLossError("no configuration");
  return document.value(key, nlohmann::json());
}

std::string build_text(const BuildFacts& build) {
  return build.version + ", " + build.compiler + ", " + build.isa;
}

std::span<std::byte> bytes_of(std::vector<float>& numbers) {
  return std::as_writable_bytes(std::span(numbers));
}

}  // namespace

absl::StatusOr<Found> choose_checkpoint(CheckpointStore* store, FileSystem& files,
                                        const ResumeChoice& choice, const RunId& run,
                                        const FlatLayout& layout,
                                        const CheckpointStore::Note& note) {
  using Kind = ResumeChoice::Kind;
  if (choice.kind == Kind::kAuto) {
    return store == nullptr ? absl::StatusOr<Found>(Found()) : store->load_newest(layout);
  }
  if (store != nullptr) {
    auto own = store->load_newest(layout, run);
    if (!own.ok() || own->has_value()) return own;
  }
  absl::StatusOr<Found> start = Found();
  if (choice.kind == Kind::kPath) start = load_path(files, choice.path, layout, note);
  if (!start.ok() || store == nullptr) return start;
  const std::uint64_t step = start->has_value() ? (*start)->manifest.counters.step : 0;
  const absl::Status free = nothing_ahead(*store, run, step);
  if (!free.ok()) return free;
  return start;
}

absl::StatusOr<std::optional<Manifest>> broadcast_manifest(Collectives& group,
                                                           const Manifest* mine) {
  std::string text;
  if (group.rank() == 0 && mine != nullptr) text = manifest_text(*mine);
  std::array<std::uint64_t, 1> size = {text.size()};
  absl::Status status = broadcast(group, 0, std::as_writable_bytes(std::span(size)));
  if (!status.ok()) return status;
  if (size[0] == 0) return std::optional<Manifest>();
  text.resize(size[0]);
  status = broadcast(group, 0, std::as_writable_bytes(std::span(text)));
  if (!status.ok()) return status;
  auto manifest = parse_manifest(text);
  if (!manifest.ok()) return manifest.status();
  return std::optional(*std::move(manifest));
}

absl::Status broadcast_tensors(Collectives& group, TrainTensors& tensors) {
  for (std::vector<float>* stream : {&tensors.master, &tensors.m, &tensors.v}) {
    const absl::Status status = broadcast(group, 0, bytes_of(*stream));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> compare_with(const Manifest& manifest,
                                                      const RunFacts& facts) {
  if (part_of(manifest.config, "model").value_or(nullptr) !=
      part_of(facts.config, "model").value_or(nullptr)) {
    return absl::FailedPreconditionError("the checkpoint is of another model: " +
                                         part_of(manifest.config, "model").value_or("").dump());
  }
  if (manifest.order_version != kOrderVersion) {
    return absl::FailedPreconditionError("the checkpoint's order of samples has version " +
                                         std::to_string(manifest.order_version) +
                                         "; this program knows " + std::to_string(kOrderVersion));
  }
  std::vector<std::string> notes;
  const std::vector<std::string> changed = trajectory_differences(manifest.config, facts.config);
  if (!changed.empty()) {
    std::string list;
    for (const std::string& pointer : changed)
      list += (list.empty() ? "" : ", ") + pointer;
    notes.push_back("changed since the checkpoint was made: " + list);
  }
  if (manifest.corpus_digest != facts.corpus_digest ||
      manifest.corpus_bytes != facts.corpus_bytes) {
    notes.push_back("the corpus has changed since the checkpoint was made (" +
                    std::to_string(manifest.corpus_bytes) + " bytes then, " +
                    std::to_string(facts.corpus_bytes) + " now)");
  }
  if (manifest.world_size != facts.world_size && !facts.deterministic) {
    notes.push_back("the checkpoint was made by " + std::to_string(manifest.world_size) +
                    " ranks, these are " + std::to_string(facts.world_size) +
                    ": sums round differently; parallel.deterministic makes them equal");
  }
  if (manifest.build != facts.build) {
    notes.push_back("the checkpoint was made by " + build_text(manifest.build) + "; this is " +
                    build_text(facts.build) + ": the last bits may differ");
  }
  return notes;
}

bool same_scaler(const std::string& config_a, const std::string& config_b) {
  return part_of(config_a, "loss_scale").value_or(nullptr) ==
         part_of(config_b, "loss_scale").value_or(nullptr);
}

}  // namespace muster::runtime
