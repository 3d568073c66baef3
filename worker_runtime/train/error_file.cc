// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/train/error_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace muster::runtime {

std::string error_text(const ErrorReport& report, long unix_seconds) {
  using Json = nlohmann::ordered_json;
  const std::string text = "muster-train: " + report.message;
  Json document = {
      {"message",
       {{"message", text},
        {"errorCode", report.exit_code},
        {"extraInfo", {{"py_callstack", text}, {"timestamp", std::to_string(unix_seconds)}}}}}};
  if (report.secondary) {
    document["secondary"] = true;
    if (report.peer >= 0) document["peer"] = report.peer;
  }
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::Status write_error_file(const std::string& path, const ErrorReport& report) {
  if (path.empty()) return absl::OkStatus();
  const std::string text = error_text(report, static_cast<long>(std::time(nullptr)));
  const std::string beside = path + ".tmp-" + std::to_string(::getpid());
  const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  bool written = fd >= 0;
  if (written) {
    written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    written = ::close(fd) == 0 && written;
  }
  if (written && ::rename(beside.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const int error = errno;
  ::unlink(beside.c_str());
  return absl::InternalError(path + ": cannot write: " + std::strerror(error));
}

}  // namespace muster::runtime
