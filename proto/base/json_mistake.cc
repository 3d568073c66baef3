// SPDX-License-Identifier: Apache-2.0
#include "proto/base/json_mistake.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <system_error>

namespace muster {
namespace {

constexpr std::size_t kDeepest = 100;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Bytes of the UTF-8 sequence at the beginning of `text`; 0: it is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
  }
  // Longer than needed, halves of UTF-16 pairs, beyond the last code point.
  const bool bad = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f) ||
                   (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f);
  return bad ? 0 : length;
}

std::string hex(char c) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "0x%02x", static_cast<unsigned char>(c));
  return text.data();
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::string run() {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
    while (mistake_.empty()) {
      skip_space();
      if (at_ == text_.size()) {
        if (want_ != Want::kNothing) fail("ends too early: " + wanted() + " is missing");
        break;
      }
      step();
    }
    return mistake_;
  }

 private:
  enum class Want : std::uint8_t {
    kValue,
    kFirstValue,  // or the end of the list
    kKey,
    kFirstKey,  // or the end of the object
    kColon,
    kComma,  // or the end of what is open
    kNothing
  };

  std::string wanted() const {
    switch (want_) {
      case Want::kValue: return "a value";
      case Want::kFirstValue: return "a value or ']'";
      case Want::kKey: return "a key in double quotes";
      case Want::kFirstKey: return "a key in double quotes or '}'";
      case Want::kColon: return "':'";
      case Want::kComma: return open_.back() == '{' ? "',' or '}'" : "',' or ']'";
      case Want::kNothing: break;
    }
    return "the end";
  }

  void fail(const std::string& what) { fail(at_, what); }

  void fail(std::size_t at, const std::string& what) {
    const std::string_view before = text_.substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::string_view in_line = before.substr(before.rfind('\n') + 1);  // npos + 1 is 0
    const auto column = std::count_if(in_line.begin(), in_line.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
    });
    mistake_ = std::to_string(line) + ":" + std::to_string(column + 1) + ": " + what;
  }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos)
      ++at_;
  }

  void step() {
    const char c = text_[at_];
    const bool ends_object =
        c == '}' && (want_ == Want::kFirstKey || (want_ == Want::kComma && open_.back() == '{'));
    const bool ends_list =
        c == ']' && (want_ == Want::kFirstValue || (want_ == Want::kComma && open_.back() == '['));
    if (ends_object || ends_list) {
      ++at_;
      open_.pop_back();
      value_ended();
    } else if (want_ == Want::kComma && c == ',') {
      ++at_;
      want_ = open_.back() == '{' ? Want::kKey : Want::kValue;
    } else if (want_ == Want::kColon && c == ':') {
      ++at_;
      want_ = Want::kValue;
    } else if ((want_ == Want::kKey || want_ == Want::kFirstKey) && c == '"') {
      read_text();
      want_ = Want::kColon;
    } else if (want_ == Want::kValue || want_ == Want::kFirstValue) {
      read_value(c);
    } else {
      unexpected();
    }
  }

  void value_ended() { want_ = open_.empty() ? Want::kNothing : Want::kComma; }

  void read_value(char c) {
    if (c == '{' || c == '[') {
      if (open_.size() == kDeepest) return fail("nested deeper than " + std::to_string(kDeepest));
      ++at_;
      open_ += c;
      want_ = c == '{' ? Want::kFirstKey : Want::kFirstValue;
      return;
    }
    if (c == '"') {
      read_text();
    } else if (c == '-' || is_digit(c)) {
      read_number();
    } else {
      const std::string_view rest = text_.substr(at_);
      const std::string_view word = rest.substr(0, length_of(rest, is_letter));
      if (word != "true" && word != "false" && word != "null") return unexpected();
      at_ += word.size();
    }
    value_ended();
  }

  template <class Predicate>
  static std::size_t length_of(std::string_view text, Predicate holds) {
    return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), holds) -
                                    text.begin());
  }

  void read_number() {
    constexpr std::size_t kLongestShown = 40;
    const std::string_view rest = text_.substr(at_);
    const std::string_view word =
        rest.substr(0, length_of(rest, [](char c) {
                      return is_digit(c) || is_letter(c) || c == '.' || c == '+' || c == '-';
                    }));
    std::string_view left = word.substr(word[0] == '-' ? 1 : 0);
    const auto take_digits = [&left] {
      const std::size_t digits = length_of(left, is_digit);
      left.remove_prefix(digits);
      return digits > 0;
    };
    const bool leading_zero = left.size() > 1 && left[0] == '0' && is_digit(left[1]);
    bool good = take_digits() && !leading_zero;
    if (good && left.starts_with('.')) {
      left.remove_prefix(1);
      good = take_digits();
    }
    if (good && (left.starts_with('e') || left.starts_with('E'))) {
      left.remove_prefix(1);
      if (left.starts_with('+') || left.starts_with('-')) left.remove_prefix(1);
      good = take_digits();
    }
    const std::string shown(word.substr(0, kLongestShown));
    if (!good || !left.empty()) return fail("'" + shown + "' is not a JSON number");
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool large = error == std::errc::result_out_of_range && !is_tiny(word);
    if (large) return fail("'" + shown + "' is too large a number");
    at_ += word.size();
  }

  // Of numbers out of range: by the sign of the exponent.
  static bool is_tiny(std::string_view word) {
    return word.find("e-") != word.npos || word.find("E-") != word.npos;
  }

  void read_text() {
    const std::size_t begin = at_;
    for (++at_; at_ < text_.size();) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return;
      }
      if (c == '\n' || c == '\r') return fail(begin, "this text has no closing '\"' on its line");
      if (static_cast<unsigned char>(c) < 0x20) {
        return fail("control character " + hex(c) + " inside a text");
      }
      if (c == '\\') {
        read_escape();
        if (!mistake_.empty()) return;
        continue;
      }
      const std::size_t length = utf8_length(text_.substr(at_));
      if (length == 0) return fail("byte " + hex(c) + " is not UTF-8");
      at_ += length;
    }
    fail(begin, "this text has no closing '\"'");
  }

  void read_escape() {
    const char kind = at_ + 1 < text_.size() ? text_[at_ + 1] : '"';
    if (kind != 'u') {
      if (std::string_view("\"\\/bfnrt").find(kind) == std::string_view::npos) {
        return fail("'\\' before " + shown(at_ + 1) + " is no JSON escape; '\\\\' is a backslash");
      }
      at_ += 2;
      return;
    }
    const int first = code_unit(at_);
    const bool high = first >= 0xd800 && first <= 0xdbff;
    const bool low = first >= 0xdc00 && first <= 0xdfff;
    const int second = high && text_.substr(at_ + 6).starts_with("\\u") ? code_unit(at_ + 6) : -1;
    const bool pair = second >= 0xdc00 && second <= 0xdfff;
    if (first < 0 || low || (high && !pair)) return fail("'\\u' is not followed by a character");
    at_ += high ? 12 : 6;
  }

  // The four digits of the \uXXXX at `at`; -1: they are none.
  int code_unit(std::size_t at) const {
    const std::string_view digits = text_.substr(at + 2, 4);
    int value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    const bool whole = digits.size() == 4 && error == std::errc{} &&
                       end == digits.data() + digits.size() && digits[0] != '-';
    return whole ? value : -1;
  }

  std::string shown(std::size_t at) const {
    if (at >= text_.size()) return "the end";
    constexpr std::size_t kLongest = 20;
    const std::string_view rest = text_.substr(at);
    const std::string_view word = rest.substr(0, std::min(kLongest, length_of(rest, is_letter)));
    if (!word.empty()) return "'" + std::string(word) + "'";
    if (rest[0] > ' ' && rest[0] <= '~') return std::string("'") + rest[0] + "'";
    const std::size_t length = utf8_length(rest);
    if (length > 1) return "'" + std::string(rest.substr(0, length)) + "'";
    return "byte " + hex(rest[0]);
  }

  void unexpected() {
    const char c = text_[at_];
    const bool after_comma = want_ == Want::kKey || (want_ == Want::kValue && !open_.empty());
    if ((c == '}' || c == ']') && after_comma && last_was_comma()) {
      return fail(std::string("a ',' too many before '") + c + "'");
    }
    std::string hint;
    if (c == '/' || c == '#') hint = "; JSON knows no comments";
    if (c == '\'') hint = "; texts stand in double quotes";
    const std::string word = shown(at_);
    for (const char* right : {"true", "false", "null"}) {
      std::string lower = word;
      std::transform(lower.begin(), lower.end(), lower.begin(), [](char letter) {
        return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
      });
      const bool python_none = word == "'None'" && std::string_view(right) == "null";
      if (lower == "'" + std::string(right) + "'" || python_none) {
        hint = std::string("; write ") + right;
      }
    }
    fail("expected " + wanted() + ", not " + word + hint);
  }

  bool last_was_comma() const {
    const std::size_t last = text_.substr(0, at_).find_last_not_of(" \t\r\n");
    return last != std::string_view::npos && text_[last] == ',';
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Want want_ = Want::kValue;
  std::string open_;  // the brackets that are open
  std::string mistake_;
};

}  // namespace

std::string json_mistake(std::string_view text) {
  return Scanner(text).run();
}

}  // namespace muster
