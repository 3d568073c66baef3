// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/run_directory.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/shell/error_file.h"
#include "agent/shell/event_json.h"
#include "agent/shell/log_keeper.h"
#include "proto/base/check.h"

namespace muster::agent {

namespace {

constexpr const char* kSharedBase = "/tmp/muster-";

std::string value_of(const std::map<std::string, std::string>& environment,
                     const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

absl::Status make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return absl::UnavailableError("cannot create " + path + ": " + error.message());
  return absl::OkStatus();
}

// The fallback under /tmp has a name that anyone can guess: a folder or link that somebody else
// put there is not written to.
absl::Status check_owner(const std::string& base) {
  const std::string_view shared(kSharedBase);
  const bool guessable =
      base.starts_with(shared) && base.find('/', shared.size()) == std::string::npos;
  if (!guessable) return absl::OkStatus();
  ::mkdir(base.c_str(), 0700);
  struct stat info {};
  const bool ours =
      ::lstat(base.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
  return ours ? absl::OkStatus()
              : absl::PermissionDeniedError(base + " is not a folder of this user; no logs");
}

}  // namespace

std::string default_log_dir(const std::map<std::string, std::string>& environment, uid_t uid) {
  // A relative XDG_STATE_HOME is to be ignored (XDG base directory specification).
  const std::string state = value_of(environment, "XDG_STATE_HOME");
  if (state.starts_with('/')) return state + "/muster";
  const std::string home = value_of(environment, "HOME");
  // "/" is what passwd-less containers have; it is not a home.
  if (home.starts_with('/') && home.size() > 1) return home + "/.local/state/muster";
  return kSharedBase + std::to_string(uid);
}

// A folder made and removed again says more than permission bits: root has all rights, read-only
// mounts and full disks have none.
absl::Status check_log_dir(const std::string& base, const JobId& job) {
  absl::Status status = check_owner(base);
  if (status.ok()) status = make_folders(base);
  if (!status.ok()) return status;
  const auto failed = [](const std::string& place, int error) {
    return absl::UnavailableError("cannot write in " + place + ": " + std::strerror(error));
  };
  std::string place = base + "/" + path_component(job);
  struct stat info {};
  if (::stat(place.c_str(), &info) != 0) {
    place = base;
  } else if (!S_ISDIR(info.st_mode)) {
    return failed(place, ENOTDIR);
  }
  const std::string trial = place + "/.trial-" + std::to_string(::getpid());
  // One that is there is of a namesake in another container, or of one that was killed here.
  if (::mkdir(trial.c_str(), S_IRWXU) != 0 && errno != EEXIST) return failed(place, errno);
  ::rmdir(trial.c_str());
  return absl::OkStatus();
}

absl::StatusOr<std::string> make_server_folder(const std::string& base, const JobId& job) {
  const std::string job_path = base + "/" + path_component(job);
  absl::Status status = check_owner(base);
  if (status.ok()) status = make_folders(job_path);
  if (!status.ok()) return status;
  const std::string path = job_path + "/server";
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return absl::UnavailableError("cannot create " + path + ": " + std::strerror(errno));
  }
  return path;
}

RunDirectory::RunDirectory(std::string base, JobId job,
                           std::function<void(const std::string&)> made)
    : base_(std::move(base)), on_made_(std::move(made)) {
  // Workers may change directory and still find what their variables name.
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(base_, error);
  if (!error) base_ = absolute.lexically_normal().string();
  job_path_ = base_ + "/" + path_component(job);
}

void RunDirectory::set_run(RunId run) {
  if (run == run_) return;
  run_ = std::move(run);
  made_ = false;
  lock_.reset();
}

std::string RunDirectory::run_path() const {
  if (off() || run_.empty()) return "";
  return job_path_ + "/run-" + path_component(run_);
}

std::string RunDirectory::generation_path(Generation generation) const {
  return run_path() + "/gen-" + std::to_string(generation);
}

std::string RunDirectory::rank_path(Generation generation, std::uint32_t rank) const {
  return generation_path(generation) + "/rank-" + std::to_string(rank);
}

// A new link renamed over the old one: readers find one or the other, never none.
absl::Status RunDirectory::point_latest() const {
  const std::string temporary = job_path_ + "/.latest-" + std::to_string(::getpid());
  const std::string target = "run-" + path_component(run_);
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0 ||
      ::rename(temporary.c_str(), (job_path_ + "/latest").c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    ::unlink(temporary.c_str());
    return absl::UnavailableError("cannot point " + job_path_ + "/latest: " + reason);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> RunDirectory::make_run() {
  const std::string path = run_path();
  if (path.empty()) return absl::FailedPreconditionError("no log folder");
  if (made_) return path;
  absl::Status status = check_owner(base_);
  if (status.ok()) status = make_folders(path);
  if (!status.ok()) return status;
  made_ = true;
  lock_ = lock_run_folder(path);
  // Logs without the link are still logs.
  static_cast<void>(point_latest());
  if (on_made_) on_made_(path);
  return path;
}

absl::StatusOr<std::string> RunDirectory::make_generation(Generation generation) {
  return make_below(generation_path(generation));
}

absl::StatusOr<std::string> RunDirectory::make_rank(Generation generation, std::uint32_t rank) {
  return make_below(rank_path(generation, rank));
}

absl::StatusOr<std::string> RunDirectory::make_below(std::string path) {
  const absl::StatusOr<std::string> run = make_run();
  if (!run.ok()) return run.status();
  absl::Status status = make_folders(path);
  if (!status.ok()) return status;
  return path;
}

absl::Status RunDirectory::write_meta(Generation generation, const RankMeta& meta) {
  nlohmann::ordered_json json;
  json["node"] = meta.node;
  json["rank"] = meta.rank;
  json["local_rank"] = meta.local_rank;
  json["pid"] = meta.pid;
  return write_whole(rank_path(generation, meta.rank) + "/meta.json",
                     json.dump(-1, ' ', false, decltype(json)::error_handler_t::replace) + "\n");
}

}  // namespace muster::agent
