// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/token_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

constexpr std::size_t kLongest = 4096;

absl::Status unreadable(const std::string& path, int error) {
  const std::string text = cat(path, ": ", std::strerror(error));
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
  return absl::NotFoundError(text);
}

}  // namespace

absl::StatusOr<std::string> read_token_file(const std::string& path) {
  const auto wrong = [&path](std::string_view what) {
    return absl::InvalidArgumentError(cat(path, ": ", what));
  };
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return unreadable(path, errno);
  struct stat info {};
  std::string text(kLongest + 3, '\0');
  const bool regular = fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  const ssize_t got = regular ? read(file, text.data(), text.size()) : 0;
  const int error = errno;
  close(file);
  if (!regular) return wrong("not a regular file");
  if (got < 0) return unreadable(path, error);
  text.resize(static_cast<std::size_t>(got));
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  if (text.empty()) return wrong("is empty; it must hold the token in one line");
  if (text.size() > kLongest) return wrong("longer than a token may be (4096 bytes)");
  if (text.find('\n') != std::string::npos) return wrong("several lines; a token is one");
  const auto visible = [](char letter) { return letter > ' ' && letter <= '~'; };
  if (!std::all_of(text.begin(), text.end(), visible)) {
    return wrong("a token has letters, digits and signs of ASCII only, and no blanks");
  }
  return text;
}

}  // namespace muster::launcher
