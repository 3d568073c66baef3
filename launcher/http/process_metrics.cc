// SPDX-License-Identifier: Apache-2.0
#include "launcher/http/process_metrics.h"

#include <cstddef>
#include <dirent.h>
#include <fstream>
#include <optional>
#include <sys/resource.h>
#include <unistd.h>

namespace muster::http {
namespace {

std::optional<double> resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  if (!(file >> all >> resident)) return std::nullopt;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

std::optional<double> open_descriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return std::nullopt;
  double count = -3;  // ".", ".." and the folder itself
  while (::readdir(folder) != nullptr)
    ++count;
  ::closedir(folder);
  return count;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

void render_process(MetricsText& out) {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    out.counter("process_cpu_seconds_total", "CPU time of this process, without its workers");
    out.sample(seconds(usage.ru_utime) + seconds(usage.ru_stime));
  }
  if (const auto bytes = resident_bytes()) {
    out.gauge("process_resident_memory_bytes", "Resident memory of this process");
    out.sample(*bytes);
  }
  if (const auto count = open_descriptors()) {
    out.gauge("process_open_fds", "Open file descriptors of this process");
    out.sample(*count);
  }
}

}  // namespace muster::http
