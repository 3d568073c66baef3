// SPDX-License-Identifier: Apache-2.0
//
// An owned file descriptor.
#pragma once

#include <unistd.h>
#include <utility>

namespace muster::transport {

class File {
 public:
  File() = default;
  explicit File(int fd) : fd_(fd) {}  // negative: none
  ~File() { reset(); }
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace muster::transport
