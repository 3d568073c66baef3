// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/stack_snapshot.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>
#include <utility>

#include "agent/shell/descendants.h"
#include "agent/shell/unique_fd.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostProcesses = 64;
constexpr std::size_t kMostThreads = 256;
constexpr std::size_t kMostBytes = 16 * 1024;

// Without the last line end. `error`: errno of what failed, or 0.
std::string contents(const std::string& path, int& error) {
  error = 0;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    error = errno;
    return "";
  }
  std::string text(kMostBytes, '\0');
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  if (count < 0) error = errno;
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  while (text.ends_with('\n') || text.ends_with('\0'))
    text.pop_back();
  return text;
}

const char* state_words(char state) {
  switch (state) {
    case 'R': return "R (running)";
    case 'S': return "S (sleeping)";
    case 'D': return "D (uninterruptible: waits for a device or a file system)";
    case 'T': return "T (stopped by a signal)";
    case 't': return "t (stopped by a debugger)";
    case 'Z': return "Z (ended, not reaped)";
    case 'X': return "X (dead)";
    case 'I': return "I (idle)";
    default: return "?";
  }
}

// "123 (name) S 1 …"; the name may hold anything.
char state_in(const std::string& stat) {
  const std::size_t at = stat.rfind(')');
  return at == std::string::npos || at + 2 >= stat.size() ? '?' : stat[at + 2];
}

std::string indented(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += "      " + text.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return out;
}

// A name is the program's own choice, and the file is shown on terminals.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

// `said`: that kernel stacks are not readable, which holds for all of them.
std::string thread_lines(const std::string& folder, const std::string& tid, bool& said) {
  int error = 0;
  const std::string stat = contents(folder + "/stat", error);
  if (error != 0) return "";
  int ignored = 0;
  std::string out = "  thread " + tid + " (" + printable(contents(folder + "/comm", ignored)) +
                    "): state " + state_words(state_in(stat)) + "\n";
  const std::string wchan = contents(folder + "/wchan", ignored);
  if (!wchan.empty() && wchan != "0") out += "    waits in " + wchan + "\n";
  const std::string call = contents(folder + "/syscall", error);
  if (error == 0 && !call.empty()) out += "    system call " + call + "\n";
  const std::string stack = contents(folder + "/stack", error);
  if (error == 0 && !stack.empty()) out += "    kernel stack\n" + indented(stack);
  const bool denied = error == EPERM || error == EACCES;
  if (denied && !std::exchange(said, true))
    out += "    kernel stacks are not readable (needs CAP_SYS_ADMIN)\n";
  if (error != 0 && !denied) out += std::string("    kernel stack: ") + std::strerror(error) + "\n";
  return out;
}

}  // namespace

std::vector<pid_t> processes_of(pid_t pid) {
  std::vector<pid_t> found{pid};
  for (const ProcessInfo& process : descendants_of(pid)) {
    if (found.size() == kMostProcesses) break;
    if (process.state != 'Z' && process.state != 'X') found.push_back(process.pid);
  }
  return found;
}

std::string snapshot_of(pid_t pid, const std::string& proc) {
  const std::string folder = proc + "/" + std::to_string(pid);
  int error = 0;
  const std::string name = contents(folder + "/comm", error);
  if (error != 0) return "";
  std::vector<long> threads;
  std::error_code failed;
  for (fs::directory_iterator entry(folder + "/task", failed), end; !failed && entry != end;
       entry.increment(failed)) {
    threads.push_back(std::strtol(entry->path().filename().c_str(), nullptr, 10));
  }
  std::sort(threads.begin(), threads.end());
  std::string out = "== process " + std::to_string(pid) + " (" + printable(name) + "), " +
                    std::to_string(threads.size()) +
                    (threads.size() == 1 ? " thread\n" : " threads\n");
  bool said = false;
  for (std::size_t i = 0; i < threads.size() && i < kMostThreads; ++i) {
    const std::string tid = std::to_string(threads[i]);
    out += thread_lines(folder + "/task/" + tid, tid, said);
  }
  if (threads.size() > kMostThreads) {
    out += "  and " + std::to_string(threads.size() - kMostThreads) + " more threads\n";
  }
  return out;
}

bool is_python(pid_t pid, const std::string& proc) {
  std::error_code failed;
  const fs::path program = fs::read_symlink(proc + "/" + std::to_string(pid) + "/exe", failed);
  return !failed && program.filename().string().starts_with("python");
}

}  // namespace muster::agent
