// SPDX-License-Identifier: Apache-2.0
//
// The agent's half of a progress file (layout: proto/base/progress_layout.h). It is read with
// pread and not through a mapping: a worker that truncates its file must not end the agent with
// SIGBUS. Where a worker both reports and takes its fault word, the order of the two reads (step,
// then word) keeps the promise of the layout.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <absl/status/statusor.h>

#include "agent/shell/unique_fd.h"

namespace muster::agent {

class ProgressFile {
 public:
  struct Reading {
    std::uint64_t step = 0;
    std::optional<std::uint64_t> checkpoint_step;
    bool word_taken = false;  // a fault word was written here and the worker took it
  };

  // Creates `path` (0600, 4096 bytes), which must not exist, with a fault word or 0.
  static absl::StatusOr<ProgressFile> create(const std::string& path, std::uint64_t fault_word,
                                             std::uint64_t fault_argument);

  // A fault word for a worker that runs already; the argument is there before the word.
  void ask(std::uint64_t fault_word, std::uint64_t fault_argument);

  // What the worker says now; nullopt while it has not written the magic.
  std::optional<Reading> read() const;

 private:
  UniqueFd file_;
  bool has_word_ = false;
};

}  // namespace muster::agent
