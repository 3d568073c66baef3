// SPDX-License-Identifier: Apache-2.0
//
// Reads a JSON object key by key, checking types and ranges, and refuses what nobody asked for.
// Everything is named by its JSON pointer. The first error is kept, later ones are not heard:
// reading on after an error is harmless, so callers need no check between keys.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <nlohmann/json.hpp>

namespace muster::runtime {

class JsonReader {
 public:
  // Shared by a document's readers.
  struct Findings {
    absl::Status error;                // kInvalidArgument; the first
    std::vector<std::string> ignored;  // pointers that are known and have no effect here
  };

  // `object` and `findings` must outlive the reader. An `object` that is none is an error.
  JsonReader(const nlohmann::json& object, std::string pointer, Findings& findings);

  bool has(const std::string& key) const;
  std::string pointer(const std::string& key) const { return pointer_ + "/" + key; }

  // Each leaves `out` as it is where the key is missing.
  void integer(const std::string& key, std::int64_t& out, std::int64_t lowest,
               std::int64_t highest = std::numeric_limits<std::int64_t>::max());
  void number(const std::string& key, double& out, double lowest, double highest);
  void boolean(const std::string& key, bool& out);
  void text(const std::string& key, std::string& out);
  void choice(const std::string& key, std::string& out,
              std::initializer_list<std::string_view> allowed);

  // The object under `key`; an empty one where it is missing.
  JsonReader object(const std::string& key);
  // Any value under `key`, which counts as read; nullptr where it is missing.
  const nlohmann::json* value(const std::string& key);

  // Known keys that change nothing here; named once together.
  void without_effect(std::initializer_list<std::string_view> keys);
  // A feature that would change the result: fine when off (null, false, {"enabled": false}),
  // refused otherwise.
  void must_be_off(const std::string& key, std::string_view why);

  void fail(const std::string& key, const std::string& what);
  bool ok() const { return findings_.error.ok(); }
  Findings& findings() { return findings_; }

  // After the last key: refuses what was not asked for, naming the nearest known key.
  void finish();

 private:
  const nlohmann::json& object_;
  std::string pointer_;
  Findings& findings_;
  std::set<std::string> known_;
};

}  // namespace muster::runtime
