// SPDX-License-Identifier: Apache-2.0
//
// Which workers the kernel's out-of-memory killer took. It tells nobody whom it killed; it counts
// in the victim's control group before it sends SIGKILL. So a worker that ended by a SIGKILL of
// nobody here, while the count rose, was its victim; each kill is held against one worker.
//
// A process that a worker had started and that was killed alone leaves a count that no worker is
// held against. A worker that fails by itself then is told it (a data loader's, say, whose process
// is gone), and no more than that: whose process it was the kernel does not say. What cannot be
// told apart: the next unexplained SIGKILL of the same generation is taken for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::agent {

class OomLedger {
 public:
  // A generation starts; `kills`: the count now, nullopt where it cannot be read.
  void begin(std::optional<std::uint64_t> kills) { settled_ = kills; }

  // A worker ended by SIGKILL that we did not send, `kills` is the count now. True: its victim.
  bool claim(std::optional<std::uint64_t> kills) {
    if (!settled_ || !kills || *kills <= *settled_) return false;
    ++*settled_;
    return true;
  }

  // A worker failed by itself, `kills` is the count now: what it should know of the kills that are
  // held against nobody. Empty: there are none. They may still be claimed afterwards.
  std::string told_to_failed(std::optional<std::uint64_t> kills) const;

 private:
  std::optional<std::uint64_t> settled_;  // kills before us, or held against a worker already
};

}  // namespace muster::agent
