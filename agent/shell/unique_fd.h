// SPDX-License-Identifier: Apache-2.0
//
// One owned file descriptor: closed when its holder goes. Not shared, not copied.
#pragma once

#include <unistd.h>
#include <utility>

namespace muster::agent {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }

  ~UniqueFd() { reset(); }

  // -1 where none is held.
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

  // Gives the descriptor away; the caller closes it.
  int release() { return std::exchange(fd_, -1); }

  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace muster::agent
