// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/train/output.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <utility>

#include <absl/status/status.h>

namespace muster::runtime {

absl::StatusOr<LineOutput> LineOutput::open(const std::string& metrics,
                                            std::function<void(const std::string&)> note) {
  int fd = -1;
  if (!metrics.empty()) {
    // Without O_NONBLOCK a FIFO that nobody reads would hold the run here for ever.
    fd = ::open(metrics.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd >= 0) (void)::fcntl(fd, F_SETFL, O_APPEND);
    if (fd < 0 && errno == ENXIO) {
      return absl::InvalidArgumentError("--metrics " + metrics + ": is a FIFO that nobody reads");
    }
    if (fd < 0) {
      return absl::InvalidArgumentError("--metrics " + metrics + ": " + std::strerror(errno));
    }
  }
  return LineOutput(fd, metrics, std::move(note));
}

LineOutput::LineOutput(int metrics, std::string name, std::function<void(const std::string&)> note)
    : standard_(STDOUT_FILENO), metrics_(metrics), name_(std::move(name)), note_(std::move(note)) {}

LineOutput::LineOutput(LineOutput&& other) noexcept
    : standard_(other.standard_),
      metrics_(std::exchange(other.metrics_, -1)),
      name_(std::move(other.name_)),
      note_(std::move(other.note_)) {}

LineOutput::~LineOutput() {
  if (metrics_ >= 0) ::close(metrics_);
}

void LineOutput::write(const std::string& line) {
  const std::string text = line + "\n";
  put(standard_, "standard output", text);
  put(metrics_, name_, text);
}

void LineOutput::put(int& fd, const std::string& name, const std::string& text) {
  std::size_t done = 0;
  while (fd >= 0 && done < text.size()) {
    const ssize_t put = ::write(fd, text.data() + done, text.size() - done);
    if (put >= 0) {
      done += static_cast<std::size_t>(put);
    } else if (errno == EAGAIN) {  // somebody who shares the descriptor made it non-blocking
      pollfd ready{fd, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      note_("cannot write to " + name + " any more: " + std::strerror(errno));
      if (fd != STDOUT_FILENO) ::close(fd);
      fd = -1;
    }
  }
}

}  // namespace muster::runtime
