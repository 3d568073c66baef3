// SPDX-License-Identifier: Apache-2.0
#include "agent/core/oom.h"

namespace muster::agent {

std::string OomLedger::told_to_failed(std::optional<std::uint64_t> kills) const {
  if (!settled_ || !kills || *kills <= *settled_) return "";
  const std::uint64_t count = *kills - *settled_;
  return (count == 1 ? "a process" : std::to_string(count) + " processes") +
         std::string(" of this control group ") + (count == 1 ? "was" : "were") +
         " killed meanwhile because memory ran out";
}

}  // namespace muster::agent
