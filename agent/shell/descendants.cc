// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/descendants.h"

#include <algorithm>
#include <atomic>
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

thread_local std::uint64_t missed = 0;

// What is not there is gone, and what is another user's stays hidden; these hide what may be there.
void note_failure(int error) {
  if (error == EMFILE || error == ENFILE || error == ENOMEM) ++missed;
}

constexpr int kReserved = 4;
std::atomic<int> reserve[kReserved] = {-1, -1, -1, -1};

// Gives one reserved descriptor up; -1: none is left. What is opened next gets its number.
int spend_reserve() {
  for (std::atomic<int>& kept : reserve) {
    const int fd = kept.exchange(-1);
    if (fd >= 0) return ::close(fd), fd;
  }
  return -1;
}
void refill_reserve() {
  for (std::atomic<int>& kept : reserve) {
    if (kept >= 0) continue;
    int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    int none = -1;
    if (fd >= 0 && !kept.compare_exchange_strong(none, fd)) ::close(fd);
  }
}

// Of the reserve, once what it was spent on is closed. Declare it first.
struct Refill {
  bool spent;
  ~Refill() {
    if (spent) refill_reserve();
  }
};

// open(2) for reading, with a reserved descriptor where no other is left.
class Opened {
 public:
  Opened(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC)) {
    if (fd_ < 0 && (errno == EMFILE || errno == ENFILE) && spend_reserve() >= 0) {
      refill_.spent = true;
      fd_ = ::open(path.c_str(), flags | O_CLOEXEC);
    }
    if (fd_ < 0) note_failure(errno);
  }
  ~Opened() {
    if (fd_ >= 0) ::close(fd_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  int fd() const { return fd_; }
  void release() { fd_ = -1; }  // somebody else closes it, before this goes

 private:
  Refill refill_{false};
  int fd_;
};

// The whole file, up to `limit` bytes; nullopt where it cannot be opened or read.
std::optional<std::string> read_file(const std::string& path, std::size_t limit) {
  const Opened file(path, O_RDONLY);
  if (file.fd() < 0) return std::nullopt;
  std::string text;
  char buffer[4096];
  while (text.size() < limit) {
    const ssize_t count = ::read(file.fd(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return note_failure(errno), std::nullopt;
    if (count == 0) break;
    text.append(buffer, static_cast<std::size_t>(count));
  }
  return text;
}

// Numbers of a folder's entries: pids of /proc, threads of /proc/<pid>/task.
std::vector<pid_t> numeric_entries(const std::string& path) {
  std::vector<pid_t> numbers;
  Opened opened(path, O_RDONLY | O_DIRECTORY);
  if (opened.fd() < 0) return numbers;
  DIR* folder = ::fdopendir(opened.fd());
  if (folder == nullptr) return ++missed, numbers;
  opened.release();
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

// Of a process whose first thread has ended: 'Z' where no other lives.
char living_thread_state(pid_t pid) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  char found = 'Z';
  for (const pid_t thread : numeric_entries(tasks)) {
    const auto text = read_file(tasks + "/" + std::to_string(thread) + "/stat", 4096);
    const std::size_t name_end = text ? text->rfind(')') : std::string::npos;
    if (name_end == std::string::npos || name_end + 2 >= text->size()) continue;
    const char state = (*text)[name_end + 2];
    if (state == 'D') return state;  // the one that holds the process
    if (state != 'Z' && state != 'X') found = state;
  }
  return found;
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

std::uint64_t missed_looks() {
  return missed;
}

void reserve_looks() {
  refill_reserve();
}

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
  int threads = 0;
  unsigned long long start_time = 0;
  const int fields = ::sscanf(text->c_str() + name_end + 1,
                              " %c %d %d %d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                              "%d %*d %llu",
                              &process.state, &process.parent, &process.group, &process.session,
                              &flags, &threads, &start_time);
  if (fields != 7) return std::nullopt;
  if (process.state == 'Z' && threads > 1) process.state = living_thread_state(pid);
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

std::string command_of(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  std::string text = read_file(folder + "/cmdline", 4096).value_or("");
  while (text.ends_with('\0'))
    text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  if (text.empty()) text = read_file(folder + "/comm", 64).value_or("");
  if (text.ends_with('\n')) text.pop_back();
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

std::optional<std::string> environment_entry(pid_t pid, const std::string& name) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/environ", 4U << 20);
  if (!text) return std::nullopt;
  const std::string_view all(*text);
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('\0', at), all.size());
    const std::string_view entry = all.substr(at, end - at);
    if (entry.starts_with(name) && entry.substr(name.size()).starts_with('=')) {
      return std::string(entry);
    }
    at = end + 1;
  }
  return std::nullopt;
}

bool signal_process(const ProcessInfo& process, int signal) {
  // The descriptor pins the process; only then is its identity compared.
  const auto open = [&] { return static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0U)); };
  Refill refill{false};
  UniqueFd pidfd(open());
  if (!pidfd.valid() && (errno == EMFILE || errno == ENFILE) && spend_reserve() >= 0) {
    refill.spent = true;
    pidfd.reset(open());
  }
  if (!pidfd.valid()) return note_failure(errno), false;
  const auto now = read_process(process.pid);
  if (!now || now->start_time != process.start_time) return false;
  return ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0U) == 0;
}

std::size_t kill_all_with_entry(const std::string& entry) {
  constexpr int kPasses = 8;
  const std::string name = entry.substr(0, entry.find('='));
  std::set<ProcessKey> killed;
  for (int pass = 0; pass < kPasses; ++pass) {
    bool found_new = false;
    for (const pid_t pid : numeric_entries("/proc")) {
      const auto process = read_process(pid);
      if (!process || process->state == 'Z' || pid == ::getpid() || !is_ours(pid)) continue;
      if (environment_entry(pid, name) != entry) continue;
      if (!signal_process(*process, SIGKILL)) continue;
      found_new = killed.insert(key_of(*process)).second || found_new;
    }
    if (!found_new) break;
  }
  return killed.size();
}

KillReport kill_all_below_self(Duration limit, const std::set<pid_t>& except,
                               const std::set<ProcessKey>& given_up) {
  constexpr Duration kGivenUpLimit = 250ms;
  const pid_t self = ::getpid();
  const Duration begin = monotonic();
  std::set<ProcessKey> known;
  long pause_ms = 0;
  for (int pass = 0;; ++pass) {
    std::vector<ProcessInfo> living;
    bool zombies = false;
    const std::uint64_t misses = missed;
    for (const ProcessInfo& process : descendants_of(self, except)) {
      if (process.state == 'Z' || process.state == 'X') {
        if (process.parent != self) continue;  // its parent is to blame, which is listed too
        zombies = true;
        ::waitpid(process.pid, nullptr, WNOHANG);
      } else {
        living.push_back(process);
      }
    }
    const bool blind = missed != misses;
    const bool hopeless = std::all_of(living.begin(), living.end(), [&](const ProcessInfo& one) {
      return given_up.contains(key_of(one));
    });
    if (living.empty() && !zombies && !blind) return {};
    const bool wait_on = !hopeless || zombies || blind;
    if (monotonic() - begin > (wait_on ? limit : std::min(limit, kGivenUpLimit)))
      return {std::move(living), blind};
    bool found_new = false;
    // A tree that forks faster than it is listed is frozen first, then killed.
    for (const ProcessInfo& process : living) {
      found_new = known.insert(key_of(process)).second || found_new;
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
