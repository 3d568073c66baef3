// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/scratch.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "agent/shell/descendants.h"
#include "agent/shell/remove_tree.h"
#include "agent/shell/worker_cgroup.h"
#include "proto/base/check.h"
#include "proto/base/rng.h"

namespace muster::agent {

namespace {

bool is_writable_folder(const std::string& path) {
  struct stat info {};
  return path.starts_with('/') && ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         ::access(path.c_str(), W_OK | X_OK) == 0;
}

constexpr std::size_t kTagDigits = 8;
constexpr int kAttempts = 8;

constexpr const char* kCgroupNote = "/cgroup";
// What was killed is nearly gone; what cannot be killed is not waited for.
constexpr Duration kCgroupPatience = 100ms;

std::string hex(std::uint32_t number) {
  std::array<char, kTagDigits + 1> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", number);
  return digits.data();
}

std::uint32_t random_bits() {
  std::uint32_t bits = 0;
  MUSTER_CHECK(::getrandom(&bits, sizeof bits, 0) == sizeof bits);
  return bits;
}

UniqueFd open_folder(int parent, const char* path, int flags = O_NOFOLLOW) {
  return UniqueFd(::openat(parent, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags));
}

void remove_tree(const std::string& path) {
  const std::filesystem::path whole(path);
  const UniqueFd parent = open_folder(AT_FDCWD, whole.parent_path().c_str(), 0);
  if (parent.valid()) remove_tree_at(parent.get(), whole.filename().c_str());
}

bool is_at(int folder, const std::string& path) {
  struct stat ours {};
  struct stat there {};
  return ::fstat(folder, &ours) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

bool note_cgroup(const std::string& job_folder, const std::string& group) {
  std::ofstream note(job_folder + kCgroupNote);
  note << group << std::flush;
  return note.good();
}

// The group that a job of ours made. Its name is the folder's, whatever the note says.
std::string noted_cgroup(const std::string& job_folder) {
  std::ifstream note(job_folder + kCgroupNote);
  std::string group;
  std::getline(note, group);
  const bool ours = group.starts_with('/') && std::filesystem::path(group).filename() ==
                                                  std::filesystem::path(job_folder).filename();
  return ours ? group : "";
}

// Names of job folders of this user and boot: the same prefix, then hex digits.
std::vector<std::string> siblings_of(const std::string& own, int parent) {
  std::vector<std::string> found;
  const std::string_view prefix = std::string_view(own).substr(0, own.size() - kTagDigits);
  UniqueFd again = open_folder(parent, ".");
  DIR* entries = ::fdopendir(again.get());
  if (entries == nullptr) return found;
  static_cast<void>(again.release());  // closedir closes it
  while (const dirent* entry = ::readdir(entries)) {
    const std::string_view name = entry->d_name;
    if (name.size() != own.size() || !name.starts_with(prefix) || name == own) continue;
    if (name.find_first_not_of("0123456789abcdef", prefix.size()) != std::string_view::npos)
      continue;
    found.emplace_back(name);
  }
  ::closedir(entries);
  return found;
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
  return folder + "/muster-" + std::to_string(uid) + "-" + boot_tag() + hex(random_bits());
}

std::string store_token_path(const std::string& job_folder) {
  return job_folder + "/store-token";
}

std::string choose_job_cgroup(const std::string& job_folder) {
  const std::string name = std::filesystem::path(job_folder).filename();
  const std::string group = job_cgroup_path(name);
  if (group.empty()) return "";
  return note_cgroup(job_folder, group) ? group : "";
}

void remove_job_folder(const std::string& job_folder, const std::string& cgroup) {
  const bool gone = remove_job_cgroup(cgroup, kCgroupPatience);
  remove_scratch(job_folder);
  if (gone || ::mkdir(job_folder.c_str(), S_IRWXU) != 0) return;
  note_cgroup(job_folder, cgroup);
}

std::string boot_tag() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  if (!std::getline(file, boot) || boot.empty()) return hex(random_bits());
  const std::uint64_t hash = hash_text(boot);
  return hex(static_cast<std::uint32_t>(hash ^ (hash >> 32U)));
}

// A sweeper may come between mkdir and the lock and take the new folder for an old one: then it is
// gone or locked, and another name is taken.
absl::StatusOr<JobFolder> JobFolder::make(const std::map<std::string, std::string>& environment,
                                          uid_t uid) {
  std::string path;
  int error = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    path = choose_scratch_path(environment, uid);
    if (::mkdir(path.c_str(), S_IRWXU) != 0) {
      error = errno;
      if (error == EEXIST) continue;
      break;
    }
    UniqueFd lock = open_folder(AT_FDCWD, path.c_str());
    const bool locked = lock.valid() && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
    error = errno;
    if (!locked && (!lock.valid() || error == EWOULDBLOCK)) {
      ::rmdir(path.c_str());
      if (lock.valid() || error == ENOENT) continue;
      break;
    }
    if (is_at(lock.get(), path)) return JobFolder(std::move(path), std::move(lock));
    error = ENOENT;
  }
  return absl::UnavailableError("cannot create " + path + ": " + std::strerror(error));
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

SweepReport sweep_job_folders(const std::string& own) {
  SweepReport report;
  const std::filesystem::path path(own);
  const std::string name = path.filename();
  const std::string parent_path = path.parent_path();
  if (name.size() <= kTagDigits) return report;
  const UniqueFd parent = open_folder(AT_FDCWD, parent_path.c_str(), 0);
  if (!parent.valid()) return report;
  for (const std::string& sibling : siblings_of(name, parent.get())) {
    const UniqueFd folder = open_folder(parent.get(), sibling.c_str());
    struct stat info {};
    if (!folder.valid() || ::fstat(folder.get(), &info) != 0) continue;
    if (info.st_uid != ::geteuid()) continue;
    // Held until it is removed: of two sweepers one does it.
    if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) continue;
    report.killed += kill_all_with_entry("MUSTER_STORE_TOKEN_FILE=" +
                                         store_token_path(parent_path + "/" + sibling));
    if (!remove_job_cgroup(noted_cgroup(parent_path + "/" + sibling), kCgroupPatience)) continue;
    if (remove_tree_at(parent.get(), sibling.c_str())) ++report.folders;
  }
  return report;
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
