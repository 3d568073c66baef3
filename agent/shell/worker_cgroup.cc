// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/worker_cgroup.h"

#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace muster::agent {
namespace {

// "/user.slice/job.scope" of this process, "" the topmost one; nullopt: no group of version 2, or
// one outside of what is mounted here.
std::optional<std::string> own_group(const std::string& proc) {
  std::ifstream groups(proc + "/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) continue;
    std::string group = line.substr(3);
    if ((group + "/").find("/../") != std::string::npos) return std::nullopt;
    if (group == "/") group.clear();
    return group;
  }
  return std::nullopt;
}

// In a container the path may be the host's, and mean another group here or none: the group is ours
// only if it says so.
bool holds_us(const std::string& group) {
  std::ifstream processes(group + "/cgroup.procs");
  const std::string self = std::to_string(::getpid());
  for (std::string line; std::getline(processes, line);) {
    if (line == self) return true;
  }
  return false;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool kill_group(const std::string& path) {
  const UniqueFd file(::open((path + "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
  return file.valid() && ::write(file.get(), "1", 1) == 1;
}

// Groups below `path`; links are none.
std::vector<std::string> groups_below(const std::string& path) {
  std::vector<std::string> found;
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return found;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (entry->d_type == DT_DIR && name != "." && name != "..") {
      found.push_back(path + "/" + std::string(name));
    }
  }
  ::closedir(folder);
  return found;
}

// With the groups that workers made below; rmdir refuses one with a process in it.
bool remove_groups(const std::string& path) {
  if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return true;
  for (const std::string& below : groups_below(path))
    remove_groups(below);
  return ::rmdir(path.c_str()) == 0 || errno == ENOENT;
}

}  // namespace

std::string job_cgroup_path(const std::string& name, const std::string& proc,
                            const std::string& root) {
  const std::optional<std::string> group = own_group(proc);
  if (!group) return "";
  for (const std::string& mount : {root, root + "/unified"}) {
    if (::access((mount + "/cgroup.controllers").c_str(), F_OK) != 0) continue;
    const std::string own = mount + *group;
    if (holds_us(own) && ::access(own.c_str(), W_OK) == 0) return own + "/" + name;
  }
  return "";
}

bool remove_job_cgroup(const std::string& job_group, Duration limit) {
  constexpr timespec kPause{0, 1'000'000};
  if (job_group.empty() || ::access(job_group.c_str(), F_OK) != 0) return true;
  for (Duration waited{0};; waited += 1ms) {
    kill_group(job_group);
    if (remove_groups(job_group)) return true;
    if (waited >= limit) return false;
    ::nanosleep(&kPause, nullptr);
  }
}

std::string control_groups_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cgroup");
  std::string text;
  std::getline(file, text, '\0');  // all of it
  return text;
}

std::shared_ptr<WorkerCgroup> WorkerCgroup::make(const std::string& job_group,
                                                 const std::string& name) {
  if (job_group.empty()) return nullptr;
  const std::string path = job_group + "/" + name;
  // Whoever clears up after the dead may remove a group that is empty: then once more.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (::mkdir(job_group.c_str(), 0755) != 0 && errno != EEXIST) return nullptr;
    if (::mkdir(path.c_str(), 0755) == 0) break;
    if (errno != ENOENT || attempt > 0) return nullptr;
  }
  std::shared_ptr<WorkerCgroup> made(new WorkerCgroup(path));
  const bool usable = first_line(path + "/cgroup.type") == "domain" &&
                      ::access((path + "/cgroup.kill").c_str(), W_OK) == 0;
  return usable ? made : nullptr;
}

WorkerCgroup::~WorkerCgroup() {
  remove_groups(path_);
}

UniqueFd WorkerCgroup::open() const {
  return UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

bool WorkerCgroup::is_among(const std::string& groups) const {
  // Paths may begin elsewhere there (a namespace); the job's name and the worker's are the end.
  const std::size_t job = path_.rfind('/', path_.rfind('/') - 1);
  const std::string tail = path_.substr(job) + "/";
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("0::/") && (line + "/").find(tail) != std::string::npos) return true;
  }
  return false;
}

void WorkerCgroup::kill() const {
  kill_group(path_);
}

}  // namespace muster::agent
