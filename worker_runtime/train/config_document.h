// SPDX-License-Identifier: Apache-2.0
//
// From a file and --set flags to one JSON document, before anybody asks what its keys mean.
//
// Thread rule: pure, but for reading the file.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace muster::runtime {

// kNotFound, kInvalidArgument (a directory, unreadable), naming the file.
absl::StatusOr<std::string> read_document(const std::string& file);

// Parses `text`; a key that stands twice in an object is refused, for only one can be meant.
// Then applies "a.b=V" settings in order: V is JSON or, where it does not parse, text. Objects on
// the way are made. kInvalidArgument, naming `name` or the setting.
absl::StatusOr<nlohmann::json> config_document(const std::string& text, const std::string& name,
                                               const std::vector<std::string>& settings);

}  // namespace muster::runtime
