// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/registry.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/shell/run_directory.h"
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
                     {"rendezvous", job.rendezvous}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<LiveJob> from_json(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  LiveJob job;
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
                     take_text("socket", job.socket) && take_text("rendezvous", job.rendezvous);
  if (!whole) return std::nullopt;
  return job;
}

}  // namespace

std::string registry_path(const EnvironmentMap& environment) {
  return agent::default_log_dir(environment, getuid()) + "/.live";
}

LiveEntry::~LiveEntry() {
  if (!path_.empty()) unlink(path_.c_str());
}

absl::Status LiveEntry::publish(const std::string& directory, const LiveJob& job) {
  std::error_code error;
  fs::create_directories(fs::path(directory).parent_path(), error);
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return failed(directory, errno);
  const std::string path = cat(directory, "/", job.pid, "-", job.start_ticks, ".json");
  const std::string fresh = path + ".new";
  const int file = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return failed(fresh, errno);
  const std::string text = to_json(job);
  const ssize_t written = write(file, text.data(), text.size());
  const int write_error = errno;
  close(file);
  if (written != static_cast<ssize_t>(text.size())) {
    unlink(fresh.c_str());
    return failed(fresh, written < 0 ? write_error : ENOSPC);
  }
  if (rename(fresh.c_str(), path.c_str()) != 0) {
    const int rename_error = errno;
    unlink(fresh.c_str());
    return failed(path, rename_error);
  }
  path_ = path;
  return absl::OkStatus();
}

std::vector<LiveJob> live_jobs(const std::string& directory) {
  std::map<std::pair<JobId, std::string>, LiveJob> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    const std::optional<LiveJob> job = from_json(text);
    if (!job) continue;
    if (start_ticks(job->pid) != job->start_ticks || job->start_ticks == 0) {
      unlink(entry.path().c_str());
      continue;
    }
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

}  // namespace muster::launcher
