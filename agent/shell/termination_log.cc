// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/termination_log.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "agent/shell/error_file.h"
#include "agent/shell/event_json.h"
#include "agent/shell/unique_fd.h"

namespace muster::agent {
namespace {

using Json = nlohmann::ordered_json;

std::string rendered(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Takes as much off the front of this text as surely is too much, since a byte may be written as
// six; false: nothing is left to take.
bool shorten(Json& value, std::size_t excess) {
  if (!value.is_string()) return false;
  const std::string text = value.get<std::string>();
  if (text.empty()) return false;
  value = text.substr(std::min(text.size(), excess / 6 + 1));
  return true;
}

// In place: nobody can rename over a mount. Blanks cover a longer text until the file is cut. A
// pipe that nobody reads is not waited for.
absl::Status write_over(const std::string& path, std::string text) {
  const UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0644));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) {
    return absl::UnavailableError("cannot open " + path + ": " + std::strerror(errno));
  }
  const std::size_t length = text.size();
  const auto before = static_cast<std::size_t>(S_ISREG(info.st_mode) ? info.st_size : 0);
  text.resize(std::max(length, std::min(before, kTerminationBytes)), '\n');
  const ssize_t count = S_ISREG(info.st_mode) ? ::pwrite(file.get(), text.data(), text.size(), 0)
                                              : ::write(file.get(), text.data(), text.size());
  if (count != static_cast<ssize_t>(text.size())) {
    return absl::UnavailableError("cannot write " + path + ": " + std::strerror(errno));
  }
  // What cannot be cut (a pipe, a device) needs no cutting.
  static_cast<void>(!::ftruncate(file.get(), static_cast<off_t>(length)));
  return absl::OkStatus();
}

}  // namespace

std::string termination_text(const TerminationFacts& facts) {
  Json document = {{"schema", 1}, {"job", facts.job}, {"run", facts.run}, {"node", facts.node}};
  if (facts.exit_code) document["exit_code"] = *facts.exit_code;
  if (facts.exit_class) document["exit_class"] = to_word(*facts.exit_class);
  if (!facts.text.empty()) document["text"] = facts.text;
  if (facts.first_cause) document["first_cause"] = Json::parse(render_failure(*facts.first_cause));
  std::string text = rendered(document);
  for (const char* pointer : {"/first_cause/stderr_tail", "/first_cause/detail", "/text",
                              "/first_cause/node", "/node", "/job"}) {
    const Json::json_pointer at(pointer);
    while (text.size() > kTerminationBytes && document.contains(at) &&
           shorten(document[at], text.size() - kTerminationBytes)) {
      text = rendered(document);
    }
  }
  return text;
}

absl::Status TerminationLog::put(const std::string& text) {
  struct stat info {};
  // What is behind a link is written, and the link stays.
  const bool regular = ::lstat(path_.c_str(), &info) != 0 || S_ISREG(info.st_mode);
  if (regular && write_whole(path_, text).ok()) return absl::OkStatus();
  return write_over(path_, text);
}

absl::Status TerminationLog::write(const TerminationFacts& facts) {
  if (path_.empty()) return absl::OkStatus();
  written_ = true;
  const absl::Status status = put(termination_text(facts));
  if (status.ok() || std::exchange(complained_, true)) return absl::OkStatus();
  return absl::UnavailableError("termination log: " + std::string(status.message()));
}

void TerminationLog::clear() {
  struct stat info {};
  const bool stale = !path_.empty() && ::stat(path_.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
                     info.st_size > 0;
  if (written_ || stale) static_cast<void>(write_over(path_, ""));
}

}  // namespace muster::agent
