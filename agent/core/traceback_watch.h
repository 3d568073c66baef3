// SPDX-License-Identifier: Apache-2.0
//
// Since when a worker has been failing, as its stderr says: an interpreter writes the traceback of
// the exception that ends it, and only then closes what it has open, the sockets first. That may
// take it longer than its peers need to fail over the loss.
//
// Thread rule: one caller at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "proto/base/time.h"

namespace muster::agent {

class TracebackWatch {
 public:
  // A program that logs an exception, clears up and raises it again writes several: one failure.
  static constexpr Duration kSameFailure = 1s;
  // Who lives for longer after a traceback has survived it.
  static constexpr Duration kEndsWithin = 2s;

  void feed(std::string_view data, Instant now);
  // When the first traceback of the failure was read that `now` may be the end of; nullopt: none.
  std::optional<Instant> failing_since(Instant now) const;

 private:
  std::string carry_;  // the end of what was read, which may be the beginning of one
  std::optional<Instant> first_;
  Instant latest_;
};

}  // namespace muster::agent
