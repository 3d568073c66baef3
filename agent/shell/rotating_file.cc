// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/rotating_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "agent/shell/write_all.h"

namespace muster::agent {

RotatingFile::RotatingFile(UniqueFd file, std::string path, LogRotation rule)
    : file_(std::move(file)), path_(std::move(path)), rule_(rule), limit_(rule.bytes) {
  struct stat info {};
  if (::fstat(file_.get(), &info) == 0) size_ = static_cast<std::uint64_t>(info.st_size);
  at_line_start_ = size_ == 0;
}

// How much of the text this file takes before it must be looked again; 0: a new file is due.
std::size_t RotatingFile::room_for(std::string_view text) const {
  const std::uint64_t room = limit_ > size_ ? limit_ - size_ : 0;
  if (text.size() <= room) return text.size();
  const std::size_t last = text.substr(0, room).rfind('\n');
  if (last != std::string_view::npos) return last + 1;
  if (at_line_start_ && size_ > 0) return 0;
  // A line that stands here already, or is too long for any file, goes on to its end.
  const std::uint64_t longest = limit_ + rule_.bytes;
  const std::uint64_t rest = longest > size_ ? longest - size_ : 0;
  const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
  return static_cast<std::size_t>(std::min<std::uint64_t>(end, rest));
}

int RotatingFile::write(std::string_view& rest, std::atomic<std::uint64_t>& written) {
  while (!rest.empty()) {
    std::string_view part = rest.substr(0, room_for(rest));
    if (part.empty()) {
      rotate();
      continue;
    }
    const std::string_view whole = part;
    const int error = write_all(file_.get(), part, written);
    const std::size_t done = whole.size() - part.size();
    if (done > 0) at_line_start_ = whole[done - 1] == '\n';
    size_ += done;
    rest.remove_prefix(done);
    if (error != 0) return error;
  }
  return 0;
}

void RotatingFile::rotate() {
  const int error = rename_all();
  if (error == 0) {
    size_ = 0;
    limit_ = rule_.bytes;
    at_line_start_ = true;
    return;
  }
  limit_ = size_ + rule_.bytes;  // tried again then
  if (!trouble_told_) trouble_ = error;
}

int RotatingFile::take_trouble() {
  if (trouble_ != 0) trouble_told_ = true;
  return std::exchange(trouble_, 0);
}

// The new file is there before the old one gives up its name, so that a failure costs nothing.
int RotatingFile::rename_all() {
  const std::string next = path_ + ".next";
  ::unlink(next.c_str());
  UniqueFd fresh(::open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
  if (!fresh.valid()) return errno;
  const auto name = [this](std::uint32_t number) { return path_ + "." + std::to_string(number); };
  const auto give_up = [&next] {
    const int error = errno;
    ::unlink(next.c_str());
    return error;
  };
  for (std::uint32_t number = rule_.kept; number > 1; --number) {
    const bool moved = ::rename(name(number - 1).c_str(), name(number).c_str()) == 0;
    if (!moved && errno != ENOENT) return give_up();
  }
  if (rule_.kept > 0 && ::rename(path_.c_str(), name(1).c_str()) != 0 && errno != ENOENT) {
    return give_up();
  }
  if (::rename(next.c_str(), path_.c_str()) != 0) {
    const int error = give_up();
    if (rule_.kept > 0) ::rename(name(1).c_str(), path_.c_str());
    return error;
  }
  file_ = std::move(fresh);
  return 0;
}

}  // namespace muster::agent
