// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/train/json_reader.h"

#include <algorithm>
#include <cmath>

#include "proto/base/nearest.h"

namespace muster::runtime {
namespace {

using nlohmann::json;

const json& empty_object() {
  static const json empty = json::object();
  return empty;
}

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  constexpr std::size_t kLongest = 40;
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "…";
}

std::string range_text(double lowest, double highest) {
  const json low = lowest;
  const json high = highest;
  return low.dump() + " to " + high.dump();
}

}  // namespace

JsonReader::JsonReader(const json& object, std::string pointer, Findings& findings)
    : object_(object.is_object() ? object : empty_object()),
      pointer_(std::move(pointer)),
      findings_(findings) {
  if (!object.is_object() && ok()) {
    findings_.error = absl::InvalidArgumentError((pointer_.empty() ? "/" : pointer_) +
                                                 " must be an object, not " + shown(object));
  }
}

bool JsonReader::has(const std::string& key) const {
  return object_.contains(key);
}

const json* JsonReader::value(const std::string& key) {
  known_.insert(key);
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

void JsonReader::fail(const std::string& key, const std::string& what) {
  if (ok()) findings_.error = absl::InvalidArgumentError(pointer(key) + " " + what);
}

void JsonReader::integer(const std::string& key, std::int64_t& out, std::int64_t lowest,
                         std::int64_t highest) {
  const json* found = value(key);
  if (found == nullptr) return;
  constexpr double kExact = 9007199254740992.0;  // 2^53; ds_configs write sizes as 5e8
  const bool integral = found->is_number_float() && std::abs(found->get<double>()) <= kExact &&
                        std::floor(found->get<double>()) == found->get<double>();
  const bool too_large =
      found->is_number_unsigned() &&
      found->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  if ((!found->is_number_integer() && !integral) || too_large) {
    fail(key, "must be a whole number, not " + shown(*found));
    return;
  }
  const std::int64_t number =
      integral ? static_cast<std::int64_t>(found->get<double>()) : found->get<std::int64_t>();
  if (number < lowest || number > highest) {
    const bool open = highest == std::numeric_limits<std::int64_t>::max();
    fail(key, "must be " +
                  (open ? "at least " + std::to_string(lowest)
                        : std::to_string(lowest) + " to " + std::to_string(highest)) +
                  ", not " + shown(*found));
    return;
  }
  out = number;
}

void JsonReader::number(const std::string& key, double& out, double lowest, double highest) {
  const json* found = value(key);
  if (found == nullptr) return;
  if (!found->is_number()) {
    fail(key, "must be a number, not " + shown(*found));
    return;
  }
  const double number = found->get<double>();
  if (!(number >= lowest && number <= highest)) {
    fail(key, "must be " + range_text(lowest, highest) + ", not " + shown(*found));
    return;
  }
  out = number;
}

void JsonReader::boolean(const std::string& key, bool& out) {
  const json* found = value(key);
  if (found == nullptr) return;
  if (found->is_boolean()) {
    out = found->get<bool>();
  } else {
    fail(key, "must be true or false, not " + shown(*found));
  }
}

void JsonReader::text(const std::string& key, std::string& out) {
  const json* found = value(key);
  if (found == nullptr) return;
  if (found->is_string()) {
    out = found->get<std::string>();
  } else {
    fail(key, "must be text, not " + shown(*found));
  }
}

void JsonReader::choice(const std::string& key, std::string& out,
                        std::initializer_list<std::string_view> allowed) {
  std::string chosen = out;
  text(key, chosen);
  if (!has(key) || !ok()) return;
  if (std::find(allowed.begin(), allowed.end(), chosen) != allowed.end()) {
    out = chosen;
    return;
  }
  std::string list;
  for (const std::string_view one : allowed)
    list += (list.empty() ? "" : ", ") + std::string(one);
  fail(key, "must be one of " + list + ", not " + shown(object_.at(key)));
}

JsonReader JsonReader::object(const std::string& key) {
  const json* found = value(key);
  return {found == nullptr ? empty_object() : *found, pointer(key), findings_};
}

void JsonReader::without_effect(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (value(std::string(key)) != nullptr) findings_.ignored.push_back(pointer(std::string(key)));
  }
}

void JsonReader::must_be_off(const std::string& key, std::string_view why) {
  const json* found = value(key);
  if (found == nullptr || found->is_null() || *found == false) return;
  const bool disabled = found->is_object() && found->value("enabled", json(true)) == false;
  if (!disabled) fail(key, std::string(why));
}

void JsonReader::finish() {
  for (const auto& [key, unused] : object_.items()) {
    if (known_.contains(key)) continue;
    const std::string near = nearest(key, {known_.begin(), known_.end()});
    fail(key, near.empty() ? "is not a key of this version"
                           : "is not a key of this version; did you mean " + pointer(near) + "?");
    return;
  }
}

}  // namespace muster::runtime
