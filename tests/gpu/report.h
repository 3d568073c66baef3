// SPDX-License-Identifier: Apache-2.0
//
// What gpu-check finds, as rows: made by the process of a section, sent as lines, gathered by the
// program, which writes JSON and a table of them.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace muster::runtime::cuda::gpu_check {

struct Row {
  enum class Kind : std::uint8_t {
    kFact,    // `note` says it
    kPass,    // a check that holds
    kFail,    // … that does not; `note` says why
    kFigure,  // a number; a goal, never a verdict
    kAt       // what is begun now: where to go on if it ends the process
  };
  Kind kind = Kind::kFact;
  std::string section;
  std::string what;
  std::string note;
  double value = 0;
  std::string unit;
  double ceiling = 0;  // what `value` is to be seen beside; 0: nothing
  bool operator==(const Row&) const = default;
};

// One line, with its end; and back, nullopt: it is none.
std::string row_line(const Row& row);
std::optional<Row> read_row_line(const std::string& line);

// A section's own end.
class Report {
 public:
  Report(std::string section, std::FILE* out) : section_(std::move(section)), out_(out) {}
  void fact(const std::string& what, const std::string& note);
  void check(const std::string& what, bool holds, const std::string& note = "");
  void figure(const std::string& what, double value, const std::string& unit, double ceiling = 0,
              const std::string& note = "");
  void at(const std::string& what);

 private:
  void send(Row row);
  std::string section_;
  std::FILE* out_;
};

// All of it as JSON; `finished`: the sections that have run. "" or what went wrong.
std::string write_json(const std::string& path, const std::vector<Row>& rows,
                       const std::vector<std::string>& finished, bool on_fakes);

// For people: figures one a line; of checks how many hold, and those that do not.
void print_table(const std::vector<Row>& rows, std::FILE* out);

}  // namespace muster::runtime::cuda::gpu_check
