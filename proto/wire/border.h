// SPDX-License-Identifier: Apache-2.0
//
// The customs officer: every value that comes from a message passes through a Border, which
// remembers the first complaint with the path of the field ("join.spec.min_nodes"). Readers go on
// after a complaint, with a harmless value; the caller looks at ok() once, at the end.
//
// Not thread-safe; one Border a message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "proto/base/ids.h"
#include "proto/base/time.h"
#include "proto/wire/limits.h"

namespace muster::wire {

class Border {
 public:
  bool ok() const { return complaint_.empty(); }
  // OK, or kInvalidArgument with the first complaint.
  absl::Status status() const;

  void complain(const char* field, const std::string& what);

  // Runs `read` with `field` as the parent of what it complains about.
  template <class Read>
  auto within(const char* field, Read read) {
    path_.push_back(field);
    auto value = read();
    path_.pop_back();
    return value;
  }

  // A name: printable (no control characters), at most kMaxNameBytes. May be empty.
  std::string name(const char* field, const std::string& value);
  std::string required_name(const char* field, const std::string& value);
  // Any bytes, at most `most`.
  std::string text(const char* field, const std::string& value, std::size_t most = kMaxTextBytes);

  // [0, kMaxDuration].
  Duration duration(const char* field, std::int64_t ns);
  std::uint16_t port(const char* field, std::uint32_t value);
  Generation generation(const char* field, std::int64_t value);  // >= kNoGeneration
  std::int64_t pid(const char* field, std::int64_t value);       // [0, 2^31)
  double share(const char* field, double value);                 // finite, [0, 1]
  template <class Integer>
  Integer between(const char* field, Integer value, Integer low, Integer high) {
    if (value >= low && value <= high) return value;
    complain(field, "is " + std::to_string(value) + ", must be " + std::to_string(low) + " to " +
                        std::to_string(high));
    return low;
  }
  // Complains if a repeated field is too long.
  bool count(const char* field, int size, std::size_t most);
  // Complains if a message or oneof that must be there is not.
  bool present(const char* field, bool is_there);

  // Enums cross as value + 1; 0 means missing.
  template <class Enum>
  Enum enumerator(const char* field, int value, Enum last) {
    if (value >= 1 && value <= static_cast<int>(last) + 1) return static_cast<Enum>(value - 1);
    complain(field, value == 0 ? "missing" : "unknown value " + std::to_string(value));
    return Enum{};
  }

 private:
  std::vector<const char*> path_;
  std::string complaint_;
};

// Domain enum to the generated one.
template <class Wire, class Enum>
Wire to_enum(Enum value) {
  return static_cast<Wire>(static_cast<int>(value) + 1);
}

// At most `most` bytes from the front, or from the back.
std::string cut(const std::string& text, std::size_t most = kMaxTextBytes);
std::string cut_front(const std::string& text, std::size_t most);

}  // namespace muster::wire
