// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/scratch.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sys/random.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "proto/base/check.h"

namespace muster::agent {

namespace {

bool is_writable_folder(const std::string& path) {
  struct stat info {};
  return path.starts_with('/') && ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         ::access(path.c_str(), W_OK | X_OK) == 0;
}

// A worker may have taken away its own rights on a folder below; they are given back first.
void remove_tree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (!error) return;
  for (auto at = std::filesystem::recursive_directory_iterator(
           path, std::filesystem::directory_options::skip_permission_denied, error);
       !error && at != std::filesystem::recursive_directory_iterator(); at.increment(error)) {
    std::error_code ignored;
    if (at->is_directory(ignored) && !at->is_symlink(ignored)) {
      std::filesystem::permissions(at->path(), std::filesystem::perms::owner_all,
                                   std::filesystem::perm_options::add, ignored);
    }
  }
  std::filesystem::remove_all(path, error);
}

}  // namespace

std::string choose_scratch_path(const std::map<std::string, std::string>& environment, uid_t uid) {
  std::string folder = "/tmp";
  for (const std::string& name : {std::string("XDG_RUNTIME_DIR"), std::string("TMPDIR"),
                                  std::string("/tmp"), std::string("/dev/shm")}) {
    const auto found = environment.find(name);
    const std::string& path = found == environment.end() ? name : found->second;
    if (!is_writable_folder(path)) continue;
    folder = path;
    break;
  }
  std::uint64_t random = 0;
  MUSTER_CHECK(::getrandom(&random, sizeof(random), 0) == sizeof(random));
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "/muster-%u-%016llx", static_cast<unsigned>(uid),
                static_cast<unsigned long long>(random));
  return folder + name.data();
}

bool remove_scratch(const std::string& path) {
  const std::filesystem::path name = std::filesystem::path(path).filename();
  if (!path.starts_with('/') || !name.string().starts_with("muster-")) return false;
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return errno == ENOENT;
  if (!S_ISDIR(info.st_mode)) return false;
  remove_tree(path);
  return ::lstat(path.c_str(), &info) != 0;
}

Scratch::Scratch(std::string path) : path_(std::move(path)) {}

Scratch::~Scratch() {
  remove_all();
}

absl::StatusOr<WorkerPaths> Scratch::make_worker(Generation generation, std::uint32_t local_rank) {
  // The name is random: one that exists was put there by somebody else, and is not used.
  if (!made_ && ::mkdir(path_.c_str(), 0700) != 0) {
    return absl::UnavailableError("cannot create " + path_ + ": " + std::strerror(errno));
  }
  made_ = true;
  WorkerPaths paths;
  paths.folder = path_ + "/g" + std::to_string(generation) + "-w" + std::to_string(local_rank);
  if (::mkdir(paths.folder.c_str(), 0700) != 0) {
    return absl::UnavailableError("cannot create " + paths.folder + ": " + std::strerror(errno));
  }
  paths.progress_file = paths.folder + "/progress";
  paths.stop_file = paths.folder + "/stop";
  paths.assignment_file = paths.folder + "/assignment.json";
  paths.error_file = paths.folder + "/error.json";
  return paths;
}

void Scratch::remove_worker(const WorkerPaths& paths) {
  if (!paths.folder.empty()) remove_tree(paths.folder);
}

void Scratch::remove_all() {
  if (!made_) return;
  remove_tree(path_);
  made_ = false;
}

}  // namespace muster::agent
