// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/border.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace muster::wire {

absl::Status Border::status() const {
  return ok() ? absl::OkStatus() : absl::InvalidArgumentError(complaint_);
}

void Border::complain(const char* field, const std::string& what) {
  if (!complaint_.empty()) return;
  for (const char* parent : path_)
    complaint_.append(parent).append(".");
  complaint_.append(field).append(": ").append(what);
}

std::string Border::name(const char* field, const std::string& value) {
  if (value.size() > kMaxNameBytes) {
    complain(field, "longer than " + std::to_string(kMaxNameBytes) + " bytes");
    return {};
  }
  const bool printable = std::all_of(value.begin(), value.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20U && byte != 0x7fU;
  });
  if (!printable) {
    complain(field, "has a control character");
    return {};
  }
  return value;
}

std::string Border::required_name(const char* field, const std::string& value) {
  if (value.empty()) complain(field, "missing");
  return name(field, value);
}

std::string Border::text(const char* field, const std::string& value, std::size_t most) {
  if (value.size() <= most) return value;
  complain(field, "longer than " + std::to_string(most) + " bytes");
  return {};
}

Duration Border::duration(const char* field, std::int64_t ns) {
  return Duration(between<std::int64_t>(field, ns, 0, kMaxDuration.count()));
}

std::uint16_t Border::port(const char* field, std::uint32_t value) {
  return static_cast<std::uint16_t>(between(field, value, 0U, 65535U));
}

Generation Border::generation(const char* field, std::int64_t value) {
  // Half the range, so that the next number always exists.
  return between<Generation>(field, value, kNoGeneration,
                             std::numeric_limits<Generation>::max() / 2);
}

std::int64_t Border::pid(const char* field, std::int64_t value) {
  return between<std::int64_t>(field, value, 0, std::numeric_limits<std::int32_t>::max());
}

double Border::share(const char* field, double value) {
  if (std::isfinite(value) && value >= 0 && value <= 1) return value;
  complain(field, "is not in [0, 1]");
  return 0;
}

bool Border::count(const char* field, int size, std::size_t most) {
  if (static_cast<std::size_t>(size) <= most) return true;
  complain(field, "has " + std::to_string(size) + " entries, at most " + std::to_string(most));
  return false;
}

bool Border::present(const char* field, bool is_there) {
  if (!is_there) complain(field, "missing");
  return is_there;
}

std::string cut(const std::string& text, std::size_t most) {
  return text.substr(0, most);
}

std::string cut_front(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(text.size() - most);
}

}  // namespace muster::wire
