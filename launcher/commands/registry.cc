// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/registry.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <optional>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/shell/run_directory.h"
#include "agent/shell/scratch.h"
#include "launcher/commands/node_facts.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

absl::Status failed(const std::string& what, int error) {
  return absl::UnavailableError(cat(what, ": ", std::strerror(error)));
}

std::string to_json(const LiveJob& job) {
  const Json json = {{"schema", 1},
                     {"job", job.job},
                     {"pid", job.pid},
                     {"start_ticks", job.start_ticks},
                     {"node", job.node},
                     {"socket", job.socket},
                     {"rendezvous", job.rendezvous},
                     {"boot", agent::boot_tag()},
                     {"host", host_name()}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

struct Entry {
  LiveJob job;
  std::string boot;
  std::string host;
};

std::optional<Entry> from_json(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  Entry entry;
  LiveJob& job = entry.job;
  const auto take_text = [&](const char* key, std::string& field) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_string()) return false;
    field = found->get<std::string>();
    return true;
  };
  const auto pid = json.find("pid");
  const auto ticks = json.find("start_ticks");
  if (pid == json.end() || !pid->is_number_unsigned()) return std::nullopt;
  if (ticks == json.end() || !ticks->is_number_unsigned()) return std::nullopt;
  job.pid = pid->get<std::int64_t>();
  job.start_ticks = ticks->get<std::uint64_t>();
  const bool whole = take_text("job", job.job) && take_text("node", job.node) &&
                     take_text("socket", job.socket) && take_text("rendezvous", job.rendezvous) &&
                     take_text("boot", entry.boot) && take_text("host", entry.host);
  if (!whole) return std::nullopt;
  return entry;
}

// nullopt: this file system has no locks.
std::optional<bool> is_locked(int file) {
  // Shared, so that two who look do not take each other for the owner.
  if (flock(file, LOCK_SH | LOCK_NB) == 0) return false;
  return errno == EWOULDBLOCK ? std::optional(true) : std::nullopt;
}

bool is_at(int file, const std::string& path) {
  struct stat ours {};
  struct stat there {};
  return fstat(file, &ours) == 0 && lstat(path.c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

std::string read_all(int file) {
  constexpr std::size_t kMost = 64 * 1024;  // of names and addresses
  std::string text(kMost, '\0');
  const ssize_t count = read(file, text.data(), text.size());
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return text;
}

// The job of a file whose process lives on this host. That of a dead process is removed, also of
// an earlier boot of this host; what other hosts wrote is left alone.
std::optional<LiveJob> look_at(const std::string& path) {
  const agent::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.valid()) return std::nullopt;
  const std::optional<bool> locked = is_locked(file.get());
  const std::optional<Entry> entry = from_json(read_all(file.get()));
  if (!entry) return std::nullopt;
  const bool same_boot = entry->boot == agent::boot_tag();
  if (locked == false) {
    // Free of its lock, a file may have been replaced by its owner just now.
    const bool ours = same_boot || entry->host == host_name();
    if (ours && is_at(file.get(), path)) unlink(path.c_str());
    return std::nullopt;
  }
  const bool lives = locked.has_value() || start_ticks(entry->job.pid) == entry->job.start_ticks;
  return same_boot && lives ? std::optional(entry->job) : std::nullopt;
}

// Written for the rename that never came.
void look_at_unfinished(const std::string& path) {
  const agent::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.valid() && is_locked(file.get()) == false) unlink(path.c_str());
}

// 0, or the errno that stopped it.
int write_entry(const std::string& path, const std::string& text, agent::UniqueFd& lock) {
  const std::string fresh = path + ".new";
  agent::UniqueFd file(
      open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return errno;
  // Somebody who looks whether it is locked may hold it for a moment, and remove it then.
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return EWOULDBLOCK;
  const ssize_t written = write(file.get(), text.data(), text.size());
  int error = written < 0 ? errno : 0;
  if (error == 0 && written != static_cast<ssize_t>(text.size())) error = ENOSPC;
  if (error == 0 && rename(fresh.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(fresh.c_str());
    return error;
  }
  lock = std::move(file);  // of an earlier file only now, when the new one is there
  return 0;
}

}  // namespace

std::string registry_path(const EnvironmentMap& environment) {
  return agent::default_log_dir(environment, getuid()) + "/.live";
}

LiveEntry::~LiveEntry() {
  if (!path_.empty()) unlink(path_.c_str());
}

absl::Status LiveEntry::publish(const std::string& directory, const LiveJob& job) {
  std::error_code ignored;
  fs::create_directories(fs::path(directory).parent_path(), ignored);
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return failed(directory, errno);
  const std::string path = cat(directory, "/", job.pid, "-", job.start_ticks, ".json");
  constexpr int kAttempts = 5;
  const std::string text = to_json(job);
  int error = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    error = write_entry(path, text, lock_);
    if (error != EWOULDBLOCK && error != ENOENT) break;
  }
  if (error != 0) return failed(path, error);
  path_ = path;
  return absl::OkStatus();
}

std::vector<LiveJob> live_jobs(const std::string& directory) {
  std::map<std::pair<JobId, std::string>, LiveJob> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().extension() != ".json") continue;
    const std::optional<LiveJob> job = look_at(entry.path());
    if (!job) continue;
    // Two standalone jobs may share an id; they are told apart by where their server is.
    const auto [at, is_new] = found.try_emplace(
        {job->job, job->rendezvous.empty() ? job->socket : job->rendezvous}, *job);
    if (!is_new && at->second.socket.empty()) at->second = *job;
  }
  std::vector<LiveJob> jobs;
  for (auto& [key, job] : found)
    jobs.push_back(std::move(job));
  return jobs;
}

void sweep_registry(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string path = entry.path();
    if (path.ends_with(".json")) look_at(path);
    if (path.ends_with(".json.new")) look_at_unfinished(path);
  }
}

}  // namespace muster::launcher
