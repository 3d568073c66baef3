// SPDX-License-Identifier: Apache-2.0
#include "proto/transport/text_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <absl/status/status.h>

#include "proto/transport/file.h"

namespace muster::transport {
namespace {

constexpr int kPatienceMs = 10000;  // for whoever writes into a pipe

absl::Status system_error(int error) {
  const char* const text = std::strerror(error);
  return error == ENOENT || error == ENOTDIR ? absl::NotFoundError(text)
                                             : absl::InvalidArgumentError(text);
}

}  // namespace

absl::StatusOr<std::string> read_text_file(const std::string& path, std::size_t most_bytes) {
  // Without O_NONBLOCK a FIFO that nobody writes would hold us here for ever.
  const File file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) return system_error(errno);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return system_error(errno);
  if (S_ISDIR(facts.st_mode)) return absl::InvalidArgumentError("is a directory, not a file");
  std::string text(most_bytes + 1, '\0');
  std::size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + filled, text.size() - filled);
    if (got > 0) {
      filled += static_cast<std::size_t>(got);
    } else if (got == 0) {
      break;
    } else if (errno == EAGAIN) {
      pollfd waiting{file.get(), POLLIN, 0};
      if (::poll(&waiting, 1, kPatienceMs) == 0) {
        return absl::DeadlineExceededError("is a pipe into which nobody writes");
      }
    } else if (errno != EINTR) {
      return system_error(errno);
    }
  }
  if (filled > most_bytes) {
    return absl::InvalidArgumentError("is larger than " + std::to_string(most_bytes) + " bytes");
  }
  text.resize(filled);
  return text;
}

}  // namespace muster::transport
