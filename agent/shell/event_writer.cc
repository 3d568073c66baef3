// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/event_writer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "agent/shell/event_json.h"

namespace muster {

namespace {

constexpr std::size_t kKeptBytes = 1U << 20U;
constexpr int kLastFlushMs = 200;

std::int64_t unix_us_now() {
  using std::chrono::system_clock;
  return std::chrono::duration_cast<std::chrono::microseconds>(
             system_clock::now().time_since_epoch())
      .count();
}

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

// A pipe or terminal inherited as standard output is opened anew, so that O_NONBLOCK concerns
// nobody else who holds it. A regular file is not: only its shared offset keeps our lines and
// the workers' from overwriting each other. -1: use descriptor 1 as it is.
int open_standard_output() {
  struct stat info {};
  if (::fstat(STDOUT_FILENO, &info) != 0) return -1;
  if (!S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode)) return -1;
  return ::open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

EventWriter::EventWriter(std::string target, NodeName node, JobId job)
    : target_(std::move(target)), node_(std::move(node)), job_(std::move(job)) {}

EventWriter::~EventWriter() {
  flush(kLastFlushMs);
  close_file();
}

void EventWriter::close_file() {
  if (owns_file_) ::close(file_);
  file_ = -1;
  owns_file_ = false;
}

absl::Status EventWriter::open_for(const RunId& run) {
  std::string path = target_;
  if (path != "-") {
    replace_all(path, "{node}", path_component(node_));
    replace_all(path, "{job}", path_component(job_));
    replace_all(path, "{run}", path_component(run));
  }
  if (file_ >= 0 && path == opened_) return absl::OkStatus();
  flush(kLastFlushMs);
  close_file();
  if (path == "-") {
    const int own = open_standard_output();
    file_ = own >= 0 ? own : STDOUT_FILENO;
    owns_file_ = own >= 0;
    struct stat info {};
    is_socket_ = ::fstat(file_, &info) == 0 && S_ISSOCK(info.st_mode);
  } else {
    is_socket_ = false;
    // O_NONBLOCK: a FIFO without a reader is an error now instead of a wait without end.
    file_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                   0644);
    owns_file_ = file_ >= 0;
    if (file_ < 0) {
      return absl::UnavailableError("events: cannot open " + path + ": " + std::strerror(errno));
    }
  }
  opened_ = std::move(path);
  return absl::OkStatus();
}

// Writes kept lines in order until one is not taken. A line partly taken stays with its rest; where
// that rest is lost, the next line begins with the end of the torn one.
absl::Status EventWriter::drain() {
  while (!kept_.empty()) {
    std::string& line = kept_.front();
    if (std::exchange(torn_, false)) {
      line.insert(0, "\n");
      ++kept_bytes_;
    }
    const ssize_t taken = is_socket_
                              ? ::send(file_, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                              : ::write(file_, line.data(), line.size());
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0 && errno == EAGAIN) return absl::OkStatus();
    if (taken < 0) {
      const std::string reason = std::strerror(errno);
      torn_ = std::exchange(begun_, false) || line.front() == '\n';
      kept_bytes_ -= line.size();
      kept_.pop_front();
      return absl::UnavailableError("events: cannot write " + opened_ + ": " + reason);
    }
    kept_bytes_ -= static_cast<std::size_t>(taken);
    begun_ = static_cast<std::size_t>(taken) < line.size();
    if (begun_) {
      line.erase(0, static_cast<std::size_t>(taken));
    } else {
      kept_.pop_front();
    }
  }
  return absl::OkStatus();
}

absl::Status EventWriter::put(std::string line) {
  if (kept_bytes_ + line.size() > kKeptBytes) {
    return absl::ResourceExhaustedError("events: nobody reads " + opened_ +
                                        "; events are being lost");
  }
  kept_bytes_ += line.size();
  kept_.push_back(std::move(line));
  return drain();
}

absl::Status EventWriter::write(const RunId& run, const JobEvent& event) {
  absl::Status status = open_for(run);
  if (status.ok()) {
    const EventStamp stamp{unix_us_now(), ++seq_, job_, run};
    status = put(render_event(stamp, event) + "\n");
  }
  if (status.ok() || complained_) return absl::OkStatus();
  complained_ = true;
  return status;
}

void EventWriter::flush(int limit_ms) {
  using std::chrono::steady_clock;
  const auto end = steady_clock::now() + std::chrono::milliseconds(limit_ms);
  while (file_ >= 0 && !kept_.empty()) {
    if (!drain().ok()) continue;  // that line is lost, the next may not be
    if (kept_.empty()) return;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - steady_clock::now()).count();
    if (left <= 0) return;
    pollfd wait{file_, POLLOUT, 0};
    ::poll(&wait, 1, static_cast<int>(left));
  }
}

}  // namespace muster
