// SPDX-License-Identifier: Apache-2.0
#include "agent/core/line_prefix.h"

#include <optional>

namespace muster::agent {
namespace {

constexpr std::size_t kLongest = 200;
constexpr std::string_view kKnown = "{rank}, {local_rank}, {node}, {job}, {generation}";

// The value of a name; nullopt: there is no such name.
std::optional<std::string> value_of(std::string_view name, const LineOwner& owner) {
  if (name == "rank") return std::to_string(owner.rank);
  if (name == "local_rank") return std::to_string(owner.local_rank);
  if (name == "node") return owner.node;
  if (name == "job") return owner.job;
  if (name == "generation") return std::to_string(owner.generation);
  return std::nullopt;
}

// The text with its names replaced, or what is wrong with it in `mistake`.
std::string expand(std::string_view text, const LineOwner& owner, std::string& mistake) {
  std::string out;
  while (!text.empty()) {
    const char first = text.front();
    if (first != '{' && first != '}') {
      out += first;
      text.remove_prefix(1);
      continue;
    }
    if (text.size() > 1 && text[1] == first) {
      out += first;
      text.remove_prefix(2);
      continue;
    }
    const std::size_t end = text.find('}');
    if (first == '}' || end == std::string_view::npos) {
      mistake = std::string("has a lone '") + first + "' (" + first + first + " stands for it)";
      return {};
    }
    const std::string_view name = text.substr(1, end - 1);
    const std::optional<std::string> value = value_of(name, owner);
    if (!value) {
      mistake = "{" + std::string(name) + "} is not one of " + std::string(kKnown);
      return {};
    }
    out += *value;
    text.remove_prefix(end + 1);
  }
  return out;
}

bool is_name_character(char c, bool first) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         (!first && c >= '0' && c <= '9');
}

std::size_t name_length(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size() && is_name_character(text[length], length == 0))
    ++length;
  return length;
}

void append_literal(std::string& out, std::string_view text) {
  for (const char c : text) {
    out += c;
    if (c == '{' || c == '}') out += c;
  }
}

}  // namespace

std::string line_prefix_mistake(std::string_view text) {
  if (text.size() > kLongest) return "is longer than " + std::to_string(kLongest) + " bytes";
  if (text.find_first_of("\r\n") != std::string_view::npos) return "contains a line end";
  std::string mistake;
  static_cast<void>(expand(text, {}, mistake));
  return mistake;
}

std::string make_line_prefix(std::string_view text, const LineOwner& owner) {
  std::string mistake;
  return expand(text, owner, mistake);
}

std::string line_prefix_of_torchrun(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t dollar = text.find('$');
    append_literal(out, text.substr(0, dollar));
    if (dollar == std::string_view::npos) break;
    text.remove_prefix(dollar + 1);
    if (text.starts_with('$')) {
      out += '$';
      text.remove_prefix(1);
      continue;
    }
    const bool braced = text.starts_with('{');
    const std::size_t length = name_length(text.substr(braced ? 1 : 0));
    const std::string_view name = text.substr(braced ? 1 : 0, length);
    const bool closed = !braced || text.substr(1 + length).starts_with('}');
    const std::string_view whole = text.substr(0, length + (braced ? 2 : 0));
    if (closed && name == "role_name") {
      out += "default";
    } else if (closed && (name == "rank" || name == "local_rank")) {
      ((out += '{') += name) += '}';
    } else {
      out += '$';  // the rest is read on as it is
      continue;
    }
    text.remove_prefix(whole.size());
  }
  return out;
}

}  // namespace muster::agent
