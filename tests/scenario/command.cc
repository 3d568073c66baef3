// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "tests/scenario/runner.h"

namespace muster::scenario {

namespace {

// Splits at blanks; "…" keeps blanks, \" inside quotes is a quote and \n a line end.
std::vector<std::string> split(std::string_view text, bool& closed) {
  std::vector<std::string> parts;
  std::string part;
  bool inside = false;
  bool any = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inside && c == '\\' && i + 1 < text.size()) {
      ++i;
      part += text[i] == 'n' ? '\n' : text[i];
    } else if (c == '"') {
      inside = !inside;
      any = true;
    } else if (c == ' ' && !inside) {
      if (any) parts.push_back(part);
      part.clear();
      any = false;
    } else {
      part += c;
      any = true;
    }
  }
  if (any) parts.push_back(part);
  closed = !inside;
  return parts;
}

std::optional<std::int64_t> to_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Command::Command(std::string_view text) {
  bool closed = true;
  const std::vector<std::string> parts = split(text, closed);
  if (!closed) complain("a quote is not closed");
  if (parts.empty()) {
    complain("no command");
    return;
  }
  name_ = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::size_t equals = parts[i].find('=');
    if (equals == std::string::npos) {
      words_.push_back(parts[i]);
    } else if (!named_.emplace(parts[i].substr(0, equals), parts[i].substr(equals + 1)).second) {
      complain("given twice: " + parts[i].substr(0, equals));
    }
  }
}

std::optional<std::string> Command::word() {
  if (next_word_ == words_.size()) return std::nullopt;
  return words_[next_word_++];
}

std::string Command::need_word(const std::string& what) {
  std::optional<std::string> found = word();
  if (!found) complain("missing word: " + what);
  return found.value_or("");
}

std::optional<std::string> Command::text(const std::string& key) {
  taken_.insert(key);
  const auto found = named_.find(key);
  if (found == named_.end()) return std::nullopt;
  return found->second;
}

std::string Command::text_or(const std::string& key, const std::string& fallback) {
  return text(key).value_or(fallback);
}

std::optional<std::int64_t> Command::number(const std::string& key) {
  const std::optional<std::string> value = text(key);
  if (!value) return std::nullopt;
  const std::optional<std::int64_t> parsed = to_number(*value);
  if (!parsed) complain("not a number: " + key + "=" + *value);
  return parsed;
}

std::int64_t Command::number_or(const std::string& key, std::int64_t fallback) {
  return number(key).value_or(fallback);
}

std::optional<Duration> Command::duration(const std::string& key) {
  const std::optional<std::string> value = text(key);
  if (!value) return std::nullopt;
  const std::optional<Duration> parsed = parse_duration(*value);
  if (!parsed) complain("not a duration: " + key + "=" + *value);
  return parsed;
}

bool Command::flag_or(const std::string& key, bool fallback) {
  const std::optional<std::string> value = text(key);
  if (!value) return fallback;
  if (*value == "yes" || *value == "true" || *value == "1") return true;
  if (*value == "no" || *value == "false" || *value == "0") return false;
  complain("neither yes nor no: " + key + "=" + *value);
  return fallback;
}

std::vector<std::int64_t> Command::numbers(const std::string& key) {
  std::vector<std::int64_t> values;
  const std::optional<std::string> list = text(key);
  if (!list) return values;
  std::string_view rest = *list;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::optional<std::int64_t> value = to_number(rest.substr(0, comma));
    if (!value) complain("not a list of numbers: " + key + "=" + *list);
    values.push_back(value.value_or(0));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return values;
}

void Command::complain(const std::string& what) {
  if (!complaint_) complaint_ = what;
}

std::optional<std::string> Command::error() const {
  if (complaint_) return complaint_;
  if (next_word_ < words_.size()) return "unknown word: " + words_[next_word_];
  for (const auto& [key, value] : named_) {
    if (!taken_.contains(key)) return "unknown argument: " + key + "=" + value;
  }
  return std::nullopt;
}

}  // namespace muster::scenario
