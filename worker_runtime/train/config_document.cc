// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/train/config_document.h"

#include <set>

#include <absl/status/status.h>

#include "proto/base/json_mistake.h"
#include "proto/transport/text_file.h"

namespace muster::runtime {
namespace {

using nlohmann::json;

// Told by the parser of every key it meets; remembers those of the open objects.
class DuplicateFinder {
 public:
  bool operator()(int /*depth*/, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) {
      open_.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      open_.pop_back();
    } else if (event == json::parse_event_t::key && found_.empty() &&
               !open_.back().insert(parsed.get<std::string>()).second) {
      found_ = parsed.get<std::string>();
    }
    return true;
  }
  const std::string& found() const { return found_; }

 private:
  std::vector<std::set<std::string>> open_;
  std::string found_;
};

absl::Status apply(json& document, const std::string& setting) {
  const auto bad = [&setting](const std::string& why) {
    return absl::InvalidArgumentError("--set " + setting + ": " + why);
  };
  const std::size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0) {
    return bad("must be KEY=VALUE, as in model.n_layer=2");
  }
  const std::string value = setting.substr(equals + 1);
  json* place = &document;
  std::string path = setting.substr(0, equals) + ".";
  for (std::size_t dot = 0; !path.empty(); path.erase(0, dot + 1)) {
    dot = path.find('.');
    const std::string key = path.substr(0, dot);
    if (key.empty()) return bad("has an empty key");
    if (place->is_null()) *place = json::object();
    if (!place->is_object()) return bad("what stands before ." + key + " is no object");
    place = &(*place)[key];
  }
  *place = json_mistake(value).empty() ? json::parse(value) : json(value);
  try {
    (void)place->dump();  // the one place where bytes that are no UTF-8 can come in
  } catch (const json::exception&) {
    return bad("is not UTF-8");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> read_document(const std::string& file) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 20U;
  auto text = transport::read_text_file(file, kMostBytes);
  if (text.ok()) return text;
  return absl::Status(text.status().code(),
                      "--config " + file + ": " + std::string(text.status().message()));
}

absl::StatusOr<json> config_document(const std::string& text, const std::string& name,
                                     const std::vector<std::string>& settings) {
  const std::string mistake = json_mistake(text);
  if (!mistake.empty()) return absl::InvalidArgumentError(name + ":" + mistake);
  DuplicateFinder duplicates;
  json document = json::parse(text, std::ref(duplicates));
  if (!duplicates.found().empty()) {
    return absl::InvalidArgumentError(name + ": key \"" + duplicates.found() +
                                      "\" stands twice in one object");
  }
  if (!document.is_object()) {
    return absl::InvalidArgumentError(name + ": must be a JSON object");
  }
  for (const std::string& setting : settings) {
    const absl::Status status = apply(document, setting);
    if (!status.ok()) return status;
  }
  return document;
}

}  // namespace muster::runtime
