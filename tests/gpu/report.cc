// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/report.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace muster::runtime::cuda::gpu_check {
namespace {

constexpr const char* kMark = "row";

// 0.00012345 and 123456789 alike.
std::string number_text(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
}

std::string without_breaks(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\t' || c == '\r') c = ' ';
  return text;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    std::array<char, 8> code{};
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(c));
      out += code.data();
    } else {
      out += c;
    }
  }
  return out + '"';
}

const char* kind_name(Row::Kind kind) {
  switch (kind) {
    case Row::Kind::kFact: return "fact";
    case Row::Kind::kPass: return "holds";
    case Row::Kind::kFail: return "fails";
    case Row::Kind::kFigure: return "figure";
    case Row::Kind::kAt: break;
  }
  return "at";
}

std::string json_of(const Row& row) {
  std::string text = "{\"section\": " + quoted(row.section) + ", \"kind\": \"" +
                     kind_name(row.kind) + "\", \"what\": " + quoted(row.what);
  if (row.kind == Row::Kind::kFigure) {
    // JSON knows no infinity.
    text += ", \"value\": " + (std::isfinite(row.value) ? number_text(row.value) : "null") +
            ", \"unit\": " + quoted(row.unit);
    if (row.ceiling > 0 && std::isfinite(row.ceiling))
      text += ", \"ceiling\": " + number_text(row.ceiling);
  }
  if (!row.note.empty()) text += ", \"note\": " + quoted(row.note);
  return text + "}";
}

}  // namespace

std::string row_line(const Row& row) {
  return std::string(kMark) + "\t" + std::to_string(static_cast<int>(row.kind)) + "\t" +
         row.section + "\t" + without_breaks(row.what) + "\t" + without_breaks(row.note) + "\t" +
         number_text(row.value) + "\t" + row.unit + "\t" + number_text(row.ceiling) + "\n";
}

std::optional<Row> read_row_line(const std::string& line) {
  std::vector<std::string> parts{""};
  for (const char c : line) {
    if (c == '\n') break;
    if (c == '\t') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  if (parts.size() != 8 || parts[0] != kMark) return std::nullopt;
  Row row;
  row.kind = static_cast<Row::Kind>(std::atoi(parts[1].c_str()));
  row.section = parts[2];
  row.what = parts[3];
  row.note = parts[4];
  row.value = std::strtod(parts[5].c_str(), nullptr);
  row.unit = parts[6];
  row.ceiling = std::strtod(parts[7].c_str(), nullptr);
  return row;
}

void Report::send(Row row) {
  row.section = section_;
  const std::string line = row_line(row);
  std::fwrite(line.data(), 1, line.size(), out_);
  std::fflush(out_);
}

void Report::fact(const std::string& what, const std::string& note) {
  send({.kind = Row::Kind::kFact, .section = {}, .what = what, .note = note, .unit = {}});
}

void Report::check(const std::string& what, bool holds, const std::string& note) {
  const Row::Kind kind = holds ? Row::Kind::kPass : Row::Kind::kFail;
  send({.kind = kind, .section = {}, .what = what, .note = note, .unit = {}});
}

void Report::figure(const std::string& what, double value, const std::string& unit, double ceiling,
                    const std::string& note) {
  send({Row::Kind::kFigure, {}, what, note, value, unit, ceiling});
}

void Report::at(const std::string& what) {
  send({.kind = Row::Kind::kAt, .section = {}, .what = what, .note = {}, .unit = {}});
}

std::string write_json(const std::string& path, const std::vector<Row>& rows,
                       const std::vector<std::string>& finished, bool on_fakes) {
  std::string text = "{\"program\": \"gpu-check\", \"version\": 1, \"on_fakes\": ";
  text += on_fakes ? "true" : "false";
  text += ", \"finished\": [";
  for (std::size_t i = 0; i < finished.size(); ++i)
    text += (i > 0 ? ", " : "") + quoted(finished[i]);
  text += "],\n \"rows\": [";
  bool first = true;
  for (const Row& row : rows) {
    if (row.kind == Row::Kind::kAt) continue;
    text += first ? "\n  " : ",\n  ";
    first = false;
    text += json_of(row);
  }
  text += "\n]}\n";
  // Whoever is killed meanwhile leaves the sections before.
  const std::string part = path + ".part";
  std::FILE* file = std::fopen(part.c_str(), "w");
  if (file == nullptr) return "cannot write " + part;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed || std::rename(part.c_str(), path.c_str()) != 0) {
    return "cannot write " + path;
  }
  return "";
}

void print_table(const std::vector<Row>& rows, std::FILE* out) {
  std::fprintf(out, "%-8s  %-46s %14s %-10s %12s %6s\n", "section", "what", "value", "unit",
               "ceiling", "share");
  std::size_t checks = 0;
  std::size_t failed = 0;
  for (const Row& row : rows) {
    if (row.kind == Row::Kind::kPass || row.kind == Row::Kind::kFail) ++checks;
    if (row.kind == Row::Kind::kFail) ++failed;
    if (row.kind == Row::Kind::kFact) {
      std::fprintf(out, "%-8s  %-46s %s\n", row.section.c_str(), row.what.c_str(),
                   row.note.c_str());
    }
    if (row.kind != Row::Kind::kFigure) continue;
    std::fprintf(out, "%-8s  %-46s %14.6g %-10s", row.section.c_str(), row.what.c_str(), row.value,
                 row.unit.c_str());
    if (row.ceiling > 0) {
      std::fprintf(out, " %12.6g %5.1f%%", row.ceiling, 100 * row.value / row.ceiling);
    }
    std::fprintf(out, "%s%s\n", row.note.empty() ? "" : "  ", row.note.c_str());
  }
  for (const Row& row : rows) {
    if (row.kind != Row::Kind::kFail) continue;
    std::fprintf(out, "%-8s  FAILS: %s: %s\n", row.section.c_str(), row.what.c_str(),
                 row.note.c_str());
  }
  std::fprintf(out, "%zu of %zu checks hold\n", checks - failed, checks);
}

}  // namespace muster::runtime::cuda::gpu_check
