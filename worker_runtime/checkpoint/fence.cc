// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/checkpoint/fence.h"

#include <cstring>

#include <nlohmann/json.hpp>

namespace muster::runtime {
namespace {

using nlohmann::json;

std::string fence_path(const std::string& directory) {
  return directory + "/FENCE";
}

}  // namespace

std::string describe(const Fence& fence) {
  return "run " + fence.run + ", generation " + std::to_string(fence.generation);
}

absl::StatusOr<std::optional<Fence>> read_fence(FileSystem& files, const std::string& directory) {
  const auto bytes = files.read(fence_path(directory));
  if (absl::IsNotFound(bytes.status())) return std::optional<Fence>();
  if (!bytes.ok()) return bytes.status();
  std::string text(bytes->size(), '\0');
  std::memcpy(text.data(), bytes->data(), bytes->size());
  try {
    const json document = json::parse(text);
    return std::optional(
        Fence{document.at("run").get<std::string>(), document.at("generation").get<Generation>()});
  } catch (const json::exception&) {
    return absl::DataLossError(fence_path(directory) + ": does not say run and generation");
  }
}

absl::Status raise_fence(FileSystem& files, const std::string& directory, const Fence& mine,
                         const std::string& nonce) {
  const auto found = read_fence(files, directory);
  if (!found.ok() && !absl::IsDataLoss(found.status())) return found.status();
  if (found.ok() && found->has_value() && (*found)->run == mine.run &&
      (*found)->generation > mine.generation) {
    return absl::AbortedError(directory + " belongs to " + describe(**found) +
                              " by now; this is generation " + std::to_string(mine.generation));
  }
  const json document = {{"run", mine.run}, {"generation", mine.generation}};
  return replace_file(files, fence_path(directory), document.dump() + "\n", nonce);
}

absl::Status check_fence(FileSystem& files, const std::string& directory, const Fence& mine) {
  const auto found = read_fence(files, directory);
  if (!found.ok()) return found.status();
  if (!found->has_value()) {
    return absl::AbortedError(fence_path(directory) + " is gone: somebody cleared the directory");
  }
  if (**found == mine) return absl::OkStatus();
  return absl::AbortedError(directory + " belongs to " + describe(**found) + " by now; this is " +
                            describe(mine));
}

}  // namespace muster::runtime
