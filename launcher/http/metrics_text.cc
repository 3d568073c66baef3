// SPDX-License-Identifier: Apache-2.0
#include "launcher/http/metrics_text.h"

#include <array>
#include <charconv>

namespace muster::http {
namespace {

void append_escaped(std::string_view value, std::string& out) {
  for (const char letter : value) {
    switch (letter) {
      case '\\': out += "\\\\"; break;
      case '"': out += "\\\""; break;
      case '\n': out += "\\n"; break;
      default: out += letter;
    }
  }
}

}  // namespace

void MetricsText::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_.append("# HELP ").append(name).append(" ").append(help).append("\n");
  text_.append("# TYPE ").append(name).append(" ").append(type).append("\n");
}

void MetricsText::sample(double value, Labels labels) {
  text_ += name_;
  const char* before = "{";
  for (const auto& [label, content] : labels) {
    text_.append(before).append(label).append("=\"");
    append_escaped(content, text_);
    text_ += '"';
    before = ",";
  }
  if (labels.size() != 0) text_ += '}';
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  text_.append(" ").append(digits.data(), end.ptr).append("\n");
}

}  // namespace muster::http
