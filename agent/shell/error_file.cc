// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/error_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "agent/shell/unique_fd.h"

namespace muster::agent {

namespace {

constexpr std::size_t kErrorFileBytes = 64U << 10U;
constexpr std::size_t kMessageBytes = 300;

// Everything up to one byte more than the limit; false and errno on failure.
bool read_all(int file, std::string& text) {
  std::array<char, 16384> buffer{};
  while (text.size() <= kErrorFileBytes) {
    const ssize_t count = ::read(file, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    if (count == 0) return true;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return true;
}

ErrorReport complaint(const std::string& path, const std::string& reason) {
  ErrorReport report;
  report.complaint = "ignored " + path + ": " + reason;
  return report;
}

}  // namespace

ErrorReport read_error_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.valid()) {
    return errno == ENOENT || errno == ENOTDIR ? ErrorReport{}
                                               : complaint(path, std::strerror(errno));
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return complaint(path, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return complaint(path, "not a regular file");
  if (info.st_size == 0) return complaint(path, "empty");
  ErrorReport report;
  if (!read_all(file.get(), report.text)) return complaint(path, std::strerror(errno));
  if (report.text.size() > kErrorFileBytes) return complaint(path, "larger than 64 KiB");
  const auto json = nlohmann::json::parse(report.text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return complaint(path, "not JSON");
  if (!json.is_object()) return complaint(path, "not a JSON object");
  const auto secondary = json.find("secondary");
  report.secondary = secondary != json.end() && secondary->is_boolean() && secondary->get<bool>();
  return report;
}

std::optional<Duration> failing_for(const std::string& path) {
  constexpr Duration kLongest = 10s;
  struct stat info {};
  timespec now{};
  if (path.empty() || ::stat(path.c_str(), &info) != 0 || info.st_size == 0) return std::nullopt;
  ::clock_gettime(CLOCK_REALTIME, &now);
  const auto since_epoch = [](const timespec& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  const Duration age = std::max<Duration>(since_epoch(now) - since_epoch(info.st_mtim), 0s);
  return age <= kLongest ? std::optional(age) : std::nullopt;
}

std::string error_message(const std::string& text) {
  if (text.empty()) return "";
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return "";
  auto message = json.find("message");
  if (message == json.end()) return "";
  if (message->is_object()) {
    const auto inner = message->find("message");
    if (inner == message->end() || !inner->is_string()) return "";
    message = inner;
  }
  if (!message->is_string()) return "";
  std::string line = message->get<std::string>();
  line.resize(std::min(line.find('\n'), line.size()));
  if (line.size() > kMessageBytes) line = line.substr(0, kMessageBytes) + "…";
  return line;
}

absl::Status write_whole(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".muster-" + std::to_string(::getpid());
  UniqueFd file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file.valid()) {
    return absl::UnavailableError("cannot create " + temporary + ": " + std::strerror(errno));
  }
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = ::write(file.get(), text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    written += static_cast<std::size_t>(count);
  }
  file.reset();
  if (written == text.size() && ::rename(temporary.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  const std::string reason = std::strerror(errno);
  ::unlink(temporary.c_str());
  return absl::UnavailableError("cannot write " + path + ": " + reason);
}

}  // namespace muster::agent
