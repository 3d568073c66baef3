// SPDX-License-Identifier: Apache-2.0
//
// The writing half of CheckpointStore: see its header for the order and why.
#include <algorithm>
#include <utility>

#include "proto/base/check.h"
#include "worker_runtime/checkpoint/checkpoint_store.h"
#include "worker_runtime/checkpoint/param_hash.h"
#include "worker_runtime/checkpoint/step_name.h"
#include "worker_runtime/data/digest.h"

namespace muster::runtime {

absl::StatusOr<bool> CheckpointStore::save(Manifest manifest, const FlatLayout& layout,
                                           const TrainTensors& tensors) {
  manifest.run = options_.fence.run;
  manifest.generation = options_.fence.generation;
  const std::uint64_t step = manifest.counters.step;
  const std::string path =
      path_of(step_name(step) + ".tmp-g" + std::to_string(options_.fence.generation) + "-" +
              options_.nonce);
  const absl::Status written = write_step(path, manifest, layout, tensors);
  const absl::StatusOr<bool> published =
      written.ok() ? publish(path, step_name(step)) : absl::StatusOr<bool>(written);
  if (!published.ok() || !*published) {
    const absl::Status removed = remove_flat_directory(files_, path);
    if (!removed.ok()) note_("a left-over: " + std::string(removed.message()));
  }
  if (published.ok()) tidy(step);
  return published;
}

absl::Status CheckpointStore::write_step(const std::string& path, Manifest& manifest,
                                         const FlatLayout& layout, const TrainTensors& tensors) {
  // The same step again, by the same process (a save that failed and is tried again).
  absl::Status status = remove_flat_directory(files_, path);
  if (status.ok()) status = files_.make_directories(path);
  manifest.tensors = stored_tensors(layout);
  manifest.layout_hash = layout.hash;
  manifest.param_hash = param_hash(layout, tensors.master);
  manifest.chunks.clear();
  const std::span<const float> streams[] = {tensors.master, tensors.m, tensors.v};
  for (std::size_t i = 0; i < std::size(kStreamKinds) && status.ok(); ++i) {
    status = write_stream(path, kStreamKinds[i], layout, streams[i], manifest.chunks);
  }
  if (!status.ok()) return status;
  const std::string text = manifest_text(manifest);
  status = write_file(path + "/manifest.json", std::as_bytes(std::span(text)));
  return status.ok() ? files_.sync_directory(path) : status;
}

absl::Status CheckpointStore::write_stream(const std::string& path, const std::string& kind,
                                           const FlatLayout& layout, std::span<const float> data,
                                           std::vector<Chunk>& chunks) {
  MUSTER_CHECK(data.size() == layout.size);
  std::vector<float> pending;
  std::uint64_t first = 0;
  int index = 0;
  const auto flush = [&]() -> absl::Status {
    if (pending.empty()) return absl::OkStatus();
    auto chunk = write_chunk(path, kind, index++, first, pending);
    if (!chunk.ok()) return chunk.status();
    first += chunk->count;
    chunks.push_back(*std::move(chunk));
    pending.clear();
    return absl::OkStatus();
  };
  for (const TensorInfo& tensor : layout.tensors) {
    std::span<const float> rest = data.subspan(tensor.offset, tensor.count);
    while (!rest.empty()) {
      const std::size_t room = options_.chunk_elements - pending.size();
      const std::span<const float> part = rest.first(std::min(room, rest.size()));
      pending.insert(pending.end(), part.begin(), part.end());
      rest = rest.subspan(part.size());
      if (pending.size() < options_.chunk_elements) continue;
      const absl::Status status = flush();
      if (!status.ok()) return status;
    }
  }
  return flush();
}

absl::StatusOr<Chunk> CheckpointStore::write_chunk(const std::string& path, const std::string& kind,
                                                   int index, std::uint64_t first,
                                                   std::span<const float> data) {
  const std::span<const std::byte> bytes = std::as_bytes(data);
  Chunk chunk;
  chunk.file = kind + "-" + std::to_string(index) + ".f32";
  chunk.kind = kind;
  chunk.first = first;
  chunk.count = data.size();
  chunk.digest = digest64(bytes);
  const absl::Status status = write_file(path + "/" + chunk.file, bytes);
  if (!status.ok()) return status;
  return chunk;
}

absl::Status CheckpointStore::write_file(const std::string& path,
                                         std::span<const std::byte> bytes) {
  auto file = files_.create(path);
  if (!file.ok()) return file.status();
  while (!bytes.empty()) {
    const std::size_t size = std::min(bytes.size(), options_.write_bytes);
    const absl::Status status = (*file)->write(bytes.first(size));
    if (!status.ok()) return status;
    bytes = bytes.subspan(size);
  }
  const absl::Status status = (*file)->sync();
  return status.ok() ? (*file)->close() : status;
}

absl::StatusOr<bool> CheckpointStore::publish(const std::string& from, const std::string& name) {
  const std::string to = path_of(name);
  absl::Status status = check_fence(files_, options_.directory, options_.fence);
  if (!status.ok()) return status;
  status = files_.rename(from, to);
  if (absl::IsAlreadyExists(status) || absl::IsNotFound(status)) {
    // Something of that name is in the way: a complete checkpoint stays, a broken one does not.
    const absl::Status standing = verify(to);
    if (standing.ok()) {
      note_(to + " is there already and complete: kept, not replaced");
      return false;
    }
    if (!is_incomplete(standing)) return standing;
    const std::string aside = to + ".bad-" + options_.nonce;
    note_("moving a broken checkpoint aside: " + std::string(standing.message()) + " -> " + aside);
    status = files_.rename(to, aside);
    if (status.ok()) status = files_.rename(from, to);
  }
  if (status.ok()) status = files_.sync_directory(options_.directory);
  if (!status.ok()) return status;
  return true;
}

// The checkpoint stands by now: trouble in here is told, and costs disk space at most.
void CheckpointStore::tidy(std::uint64_t published) {
  absl::Status status =
      replace_file(files_, path_of("LATEST"), step_name(published) + "\n", options_.nonce);
  if (status.ok()) status = remove_old(published);
  if (!status.ok()) note_("after the checkpoint: " + std::string(status.message()));
}

absl::Status CheckpointStore::remove_old(std::uint64_t published) {
  for (const std::string& name : std::exchange(stale_, {})) {
    const absl::Status status = parse_step_name(name) ? remove_flat_directory(files_, path_of(name))
                                                      : files_.remove_file(path_of(name));
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  if (options_.keep == 0) return absl::OkStatus();
  const auto names = files_.list(options_.directory);
  if (!names.ok()) return names.status();
  std::vector<std::uint64_t> steps;  // up to the one that was just published
  for (const std::string& name : *names) {
    const auto step = parse_step_name(name);
    if (step && step->suffix.empty() && step->step <= published) steps.push_back(step->step);
  }
  std::sort(steps.rbegin(), steps.rend());
  if (steps.size() <= static_cast<std::size_t>(options_.keep)) return absl::OkStatus();
  absl::Status trouble;
  const std::uint64_t oldest_kept = steps[static_cast<std::size_t>(options_.keep) - 1];
  for (const std::string& name : *names) {
    const auto step = parse_step_name(name);
    const bool removable = step && step->step < oldest_kept &&
                           (step->suffix.empty() || step->suffix.starts_with(".bad-"));
    if (!removable) continue;
    const absl::Status status = remove_flat_directory(files_, path_of(name));
    if (!status.ok()) trouble.Update(status);  // one that stays must not keep the others
  }
  return trouble;
}

}  // namespace muster::runtime
