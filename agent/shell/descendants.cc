// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/descendants.h"

#include <algorithm>
#include <charconv>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <map>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/shell/unique_fd.h"

namespace muster::agent {
namespace {

// The whole file, up to `limit` bytes; nullopt where it cannot be opened or read.
std::optional<std::string> read_file(const std::string& path, std::size_t limit) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return std::nullopt;
  std::string text;
  char buffer[4096];
  while (text.size() < limit) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;
    text.append(buffer, static_cast<std::size_t>(count));
  }
  return text;
}

// Numbers of a folder's entries: pids of /proc, threads of /proc/<pid>/task.
std::vector<pid_t> numeric_entries(const std::string& path) {
  std::vector<pid_t> numbers;
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return numbers;
  while (const dirent* entry = ::readdir(folder)) {
    pid_t number = 0;
    const char* end = entry->d_name + ::strlen(entry->d_name);
    const auto [rest, error] = std::from_chars(entry->d_name, end, number);
    if (error == std::errc() && rest == end) numbers.push_back(number);
  }
  ::closedir(folder);
  return numbers;
}

// The kernel lists children (CONFIG_PROC_CHILDREN) nearly everywhere; sandboxes may not.
bool kernel_lists_children() {
  static const bool listed = [] {
    const std::string self = std::to_string(::getpid());
    return ::access(("/proc/" + self + "/task/" + self + "/children").c_str(), R_OK) == 0;
  }();
  return listed;
}

using Tree = std::map<pid_t, std::vector<pid_t>>;

// Parent to children over all processes: what children_of falls back to.
Tree scan_tree() {
  Tree tree;
  for (const pid_t pid : numeric_entries("/proc")) {
    if (const auto process = read_process(pid)) tree[process->parent].push_back(pid);
  }
  return tree;
}

std::vector<pid_t> listed_children(pid_t pid) {
  std::vector<pid_t> children;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const pid_t thread : numeric_entries(tasks)) {
    const auto text = read_file(tasks + "/" + std::to_string(thread) + "/children", 1U << 20);
    if (!text) continue;
    const char* at = text->data();
    const char* end = at + text->size();
    while (at != end) {
      pid_t child = 0;
      const auto [rest, error] = std::from_chars(at, end, child);
      if (error != std::errc()) break;
      children.push_back(child);
      at = rest;
      while (at != end && *at == ' ')
        ++at;
    }
  }
  return children;
}

// Root could kill those of others; a job's processes are its user's.
bool is_ours(pid_t pid) {
  struct stat info {};
  return ::stat(("/proc/" + std::to_string(pid)).c_str(), &info) == 0 && info.st_uid == ::geteuid();
}

void sleep_ms(long milliseconds) {
  const timespec time{milliseconds / 1000, milliseconds % 1000 * 1'000'000};
  ::nanosleep(&time, nullptr);
}

Duration monotonic() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

std::optional<ProcessInfo> read_process(pid_t pid) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!text) return std::nullopt;
  // The name may hold anything, parentheses too; what follows its last one is regular.
  const std::size_t name_end = text->rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  ProcessInfo process;
  process.pid = pid;
  constexpr unsigned kExiting = 0x4;  // PF_EXITING; proc(5), field 9
  unsigned flags = 0;
  unsigned long long start_time = 0;
  const int fields = ::sscanf(text->c_str() + name_end + 1,
                              " %c %d %d %d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                              "%*d %*d %llu",
                              &process.state, &process.parent, &process.group, &process.session,
                              &flags, &start_time);
  if (fields != 6) return std::nullopt;
  process.exiting = (flags & kExiting) != 0;
  process.start_time = start_time;
  return process;
}

std::vector<pid_t> children_of(pid_t pid) {
  if (kernel_lists_children()) return listed_children(pid);
  Tree tree = scan_tree();
  return std::move(tree[pid]);
}

std::vector<ProcessInfo> descendants_of(pid_t root, const std::set<pid_t>& except) {
  Tree tree;
  if (!kernel_lists_children()) tree = scan_tree();
  std::vector<ProcessInfo> found;
  std::set<pid_t> seen{root};
  std::vector<pid_t> open{root};
  while (!open.empty()) {
    const pid_t parent = open.back();
    open.pop_back();
    const std::vector<pid_t> children =
        kernel_lists_children() ? listed_children(parent) : tree[parent];
    for (const pid_t child : children) {
      if (except.contains(child) || !seen.insert(child).second) continue;
      const auto process = read_process(child);
      if (!process) continue;
      found.push_back(*process);
      open.push_back(child);
    }
  }
  return found;
}

std::optional<bool> has_environment_entry(pid_t pid, const std::string& entry) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/environ", 4U << 20);
  if (!text) return std::nullopt;
  const std::string_view all(*text);
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('\0', at), all.size());
    if (all.substr(at, end - at) == entry) return true;
    at = end + 1;
  }
  return false;
}

bool signal_process(const ProcessInfo& process, int signal) {
  // The descriptor pins the process; only then is its identity compared.
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0U)));
  if (!pidfd.valid()) return false;
  const auto now = read_process(process.pid);
  if (!now || now->start_time != process.start_time) return false;
  return ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0U) == 0;
}

std::size_t kill_all_with_entry(const std::string& entry) {
  constexpr int kPasses = 8;
  std::set<std::pair<pid_t, std::uint64_t>> killed;
  for (int pass = 0; pass < kPasses; ++pass) {
    bool found_new = false;
    for (const pid_t pid : numeric_entries("/proc")) {
      const auto process = read_process(pid);
      if (!process || process->state == 'Z' || pid == ::getpid() || !is_ours(pid)) continue;
      if (!has_environment_entry(pid, entry).value_or(false)) continue;
      if (!signal_process(*process, SIGKILL)) continue;
      found_new = killed.emplace(pid, process->start_time).second || found_new;
    }
    if (!found_new) break;
  }
  return killed.size();
}

KillReport kill_all_below_self(Duration limit, const std::set<pid_t>& except) {
  const pid_t self = ::getpid();
  const Duration deadline = monotonic() + limit;
  std::set<std::pair<pid_t, std::uint64_t>> known;
  long pause_ms = 0;
  for (int pass = 0;; ++pass) {
    std::vector<ProcessInfo> living;
    bool zombies = false;
    for (const ProcessInfo& process : descendants_of(self, except)) {
      if (process.state == 'Z' || process.state == 'X') {
        zombies = true;
        if (process.parent == self) ::waitpid(process.pid, nullptr, WNOHANG);
      } else {
        living.push_back(process);
      }
    }
    if (living.empty() && !zombies) return {};
    if (monotonic() > deadline) return {std::move(living)};
    bool found_new = false;
    // A tree that forks faster than it is listed is frozen first, then killed.
    for (const ProcessInfo& process : living) {
      found_new = known.emplace(process.pid, process.start_time).second || found_new;
      if (pass > 2) signal_process(process, SIGSTOP);
    }
    for (const ProcessInfo& process : living)
      signal_process(process, SIGKILL);
    if (found_new) {
      pause_ms = 0;
    } else {
      pause_ms = std::min(pause_ms == 0 ? 1 : pause_ms * 2, 20L);
      sleep_ms(pause_ms);
    }
  }
}

}  // namespace muster::agent
