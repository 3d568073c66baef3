// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/kernel_log_reader.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::agent {
namespace {

constexpr std::size_t kRecordBytes = 16384;  // twice the kernel's limit; a read gives one record
constexpr int kMostRecords = 20000;          // a flood is not read for ever: about 20 ms
constexpr std::size_t kMostTroubles = 64;
constexpr std::size_t kMostVictims = 10000;
// Of the first pid namespace, since Linux 3.8 (include/linux/proc_ns.h).
constexpr ino_t kFirstPidNamespace = 0xEFFFFFFC;

}  // namespace

void KernelLogReader::begin(const std::string& path) {
  troubles_.clear();
  victims_.clear();
  if (!fd_.valid()) fd_.reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (fd_.valid() && ::lseek(fd_.get(), 0, SEEK_END) < 0) fd_.reset();
}

const std::vector<DeviceTrouble>& KernelLogReader::read() {
  std::array<char, kRecordBytes> buffer;
  for (int records = 0; fd_.valid() && records < kMostRecords; ++records) {
    const ssize_t count = ::read(fd_.get(), buffer.data(), buffer.size());
    if (count < 0 && (errno == EPIPE || errno == EINTR)) continue;  // overwritten: the next one
    if (count <= 0) break;
    take({buffer.data(), static_cast<std::size_t>(count)});
  }
  return troubles_;
}

bool KernelLogReader::killed_for_memory(std::int64_t pid) {
  read();
  return victims_.contains(pid);
}

// A record and its further lines, which begin with a blank.
void KernelLogReader::take(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view record = text.substr(0, end);
    const std::optional<std::int64_t> victim = parse_oom_victim(record);
    if (victim && victims_.size() < kMostVictims) victims_.insert(*victim);
    std::optional<DeviceTrouble> trouble = parse_kernel_record(record);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!trouble) continue;
    if (troubles_.size() == kMostTroubles) troubles_.erase(troubles_.begin());
    troubles_.push_back(*std::move(trouble));
  }
}

bool has_the_hosts_pids() {
  struct stat own {};
  return ::stat("/proc/self/ns/pid", &own) == 0 && own.st_ino == kFirstPidNamespace;
}

}  // namespace muster::agent
