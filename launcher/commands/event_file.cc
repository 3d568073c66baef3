// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/event_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include "agent/shell/event_json.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

namespace fs = std::filesystem;

void replace_all(std::string& text, std::string_view what, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
}

std::string directory_trouble(const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return cat(directory, ": ", error ? error.message() : "is not a directory");
  }
  if (access(directory.c_str(), W_OK | X_OK) == 0) return {};
  return cat(directory, ": ", std::strerror(errno));
}

}  // namespace

std::string event_file_trouble(const std::string& file, const std::string& node,
                               const std::string& job) {
  if (file.empty() || file == "-") return {};
  std::string path = file;
  replace_all(path, "{node}", path_component(node));
  replace_all(path, "{job}", path_component(job));
  if (path.find("{run}") != std::string::npos) {
    const std::string parent = fs::path(path).parent_path();
    if (parent.find("{run}") != std::string::npos) return {};
    return directory_trouble(parent.empty() ? "." : parent);
  }
  // As the writer of events does: a FIFO without a reader is an error now.
  const int opened =
      open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644);
  if (opened >= 0) {
    close(opened);
    return {};
  }
  return cat(path, ": ", errno == ENXIO ? "is a FIFO that nobody reads" : std::strerror(errno));
}

}  // namespace muster::launcher
