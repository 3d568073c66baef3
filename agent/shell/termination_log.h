// SPDX-License-Identifier: Apache-2.0
//
// The file from which Kubernetes shows why a container ended: one JSON object of at most 4096
// bytes, written with the first cause, while its workers are still being stopped, and again at the
// end. Empty after a success.
//
// Thread rule: one thread. Writes are small and to a local file.
#pragma once

#include <optional>
#include <string>

#include <absl/status/status.h>

#include "proto/base/ids.h"
#include "proto/base/job.h"

namespace muster::agent {

inline constexpr std::size_t kTerminationBytes = 4096;
inline constexpr const char* kTerminationPath = "/dev/termination-log";

struct TerminationFacts {
  JobId job;
  RunId run;
  NodeName node;                 // that writes it
  std::optional<int> exit_code;  // absent: it has not ended yet
  std::optional<ExitClass> exit_class;
  std::string text;  // one line; may be empty
  std::optional<Failure> first_cause;
};

// The object, with a newline. What is too long for it is cut: the last words of the worker first,
// from their beginning, then the texts.
std::string termination_text(const TerminationFacts& facts);

class TerminationLog {
 public:
  // Empty: off.
  explicit TerminationLog(std::string path) : path_(std::move(path)) {}

  // Replaces what stands there, so that a reader finds one whole object at any time: by renaming,
  // or, where the file is a mount of its own, in one write over what was there. The first failure
  // is returned, later ones are silent.
  absl::Status write(const TerminationFacts& facts);
  // After a success.
  void clear();

 private:
  absl::Status put(const std::string& text);

  std::string path_;
  bool written_ = false;
  bool complained_ = false;
};

}  // namespace muster::agent
