// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/log_files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <utility>

namespace muster::agent {

LogFiles::LogFiles(boost::asio::io_context& io, LogRotation rotation,
                   std::function<void(const std::string&)> say)
    : rotation_(rotation), say_(std::move(say)), writer_(std::make_shared<OutputWriter>(io)) {}

std::shared_ptr<OutputTarget> LogFiles::open(const std::string& path) {
  return make(path, false);
}

std::shared_ptr<OutputTarget> LogFiles::open_shared(const std::string& path) {
  std::erase_if(shared_, [](const auto& entry) { return entry.second.expired(); });
  if (auto known = shared_[path].lock()) return known;
  auto target = make(path, true);
  shared_[path] = target;
  return target;
}

std::shared_ptr<OutputTarget> LogFiles::make(const std::string& path, bool shared) {
  const auto& drops = shared ? unpicked_ : unlogged_;
  auto target = std::make_shared<OutputTarget>();
  target->name = path;
  target->owned.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!target->owned.valid()) {
    ++drops->errors;
    cannot_write(path, errno);
    return nullptr;
  }
  target->drops = drops;
  if (!shared && rotation_.bytes > 0) {
    target->rotating = std::make_unique<RotatingFile>(std::move(target->owned), path, rotation_);
  } else {
    target->fd = target->owned.get();
  }
  target->failed = [self = weak_from_this(), path](int error) {
    if (const auto files = self.lock()) files->cannot_write(path, error);
  };
  target->resumed = [self = weak_from_this(), path](std::uint64_t bytes) {
    if (const auto files = self.lock()) {
      files->say_once(files->return_told_, path + " takes output again; " + std::to_string(bytes) +
                                               " bytes are missing in it");
    }
  };
  target->not_rotated = [self = weak_from_this(), path](int error) {
    if (const auto files = self.lock()) {
      files->say_once(files->rotation_told_, "cannot put " + path + " away: " + ::strerror(error) +
                                                 " (--log-rotate); it goes on growing");
    }
  };
  return target;
}

void LogFiles::cannot_write(const std::string& path, int error) {
  say_once(failure_told_,
           "cannot write " + path + ": " + ::strerror(error) +
               " (--log-dir); what log files cannot take is shown here, the job goes on");
}

void LogFiles::say_once(bool& told, const std::string& line) {
  if (!std::exchange(told, true)) say_(line);
}

std::string LogFiles::missing() const {
  std::string text;
  if (const std::uint64_t bytes = unlogged_->bytes; bytes > 0) {
    text = "log files lack " + std::to_string(bytes) +
           " bytes of output that they could not take; it was shown here";
  }
  if (const std::uint64_t bytes = unpicked_->bytes; bytes > 0) {
    text += (text.empty() ? "" : "; ");
    text += std::to_string(bytes) + " bytes of lines picked by --duplicate-stdout-filters or " +
            "--duplicate-stderr-filters are in no file of theirs";
  }
  return text;
}

}  // namespace muster::agent
