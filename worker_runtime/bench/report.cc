// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bench/report.h"

#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

namespace muster::runtime {
namespace {

using Json = nlohmann::ordered_json;

std::string text(double number, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), "%.*f", digits, number);
  return buffer;
}

// So that the digits that mean something are there, from 2 us to minutes.
std::string time_text(double time_us) {
  return text(time_us, time_us < 1000 ? 2 : time_us < 100000 ? 1 : 0);
}

std::string right(const std::string& field, std::size_t width) {
  return field.size() < width ? std::string(width - field.size(), ' ') + field : field;
}

std::string line(const std::vector<std::string>& fields) {
  constexpr std::size_t kWidths[] = {12, 12, 6, 11, 9, 9, 8};
  std::string all;
  for (std::size_t i = 0; i < fields.size(); ++i)
    all += (i == 0 ? "" : "  ") + right(fields[i], kWidths[i]);
  return all;
}

// Without a tail of digits that mean nothing.
double rounded(double number) {
  return std::round(number * 1e6) / 1e6;
}

}  // namespace

std::vector<std::string> table_head(const BenchFacts& facts) {
  std::vector<std::string> lines;
  lines.push_back("# all-reduce, sum; " + std::to_string(facts.places.size()) +
                  (facts.places.size() == 1 ? " rank" : " ranks") + ", backend " + facts.backend);
  lines.push_back("# " + facts.options);
  for (std::size_t rank = 0; rank < facts.places.size(); ++rank)
    lines.push_back("#   rank " + std::to_string(rank) + ": " + facts.places[rank]);
  std::string names = line({"bytes", "count", "type", "time (us)", "algbw", "busbw", "wrong"});
  std::string units = line({"", "", "", "", "(GB/s)", "(GB/s)", ""});
  names[0] = units[0] = '#';
  lines.push_back(names);
  units.erase(units.find_last_not_of(' ') + 1);
  lines.push_back(units);
  return lines;
}

std::string table_row(const SweepRow& row) {
  return line({std::to_string(row.bytes), std::to_string(row.count), wire_type_name(row.type),
               time_text(row.time_us), text(row.bandwidth.algorithm, 3), text(row.bandwidth.bus, 3),
               std::to_string(row.wrong)});
}

std::vector<std::string> table_end(const SweepResult& result) {
  std::vector<std::string> lines;
  if (result.stopped) lines.emplace_back("# stopped on request");
  lines.push_back("# wrong results: " + std::to_string(result.all_wrong()));
  lines.push_back("# average bus bandwidth: " + text(result.mean_bus(), 3) + " GB/s");
  return lines;
}

std::string row_json(const BenchFacts& facts, const SweepRow& row) {
  return Json{{"collective", "all_reduce"},
              {"backend", facts.backend},
              {"ranks", facts.places.size()},
              {"bytes", row.bytes},
              {"count", row.count},
              {"type", wire_type_name(row.type)},
              {"time_us", rounded(row.time_us)},
              {"algbw_gb_per_s", rounded(row.bandwidth.algorithm)},
              {"busbw_gb_per_s", rounded(row.bandwidth.bus)},
              {"wrong", row.wrong}}
      .dump();
}

std::string end_json(const BenchFacts& facts, const SweepResult& result) {
  return Json{{result.stopped ? "stopped" : "done", true},
              {"backend", facts.backend},
              {"ranks", facts.places.size()},
              {"sizes", result.rows.size()},
              {"average_busbw_gb_per_s", rounded(result.mean_bus())},
              {"wrong", result.all_wrong()}}
      .dump();
}

std::string wrong_text(const SweepResult& result) {
  const std::uint64_t all = result.all_wrong();
  if (all == 0) return "";
  std::string ranks;
  for (std::size_t rank = 0; rank < result.wrong.size(); ++rank) {
    if (result.wrong[rank] == 0) continue;
    ranks += (ranks.empty() ? "rank " : ", rank ") + std::to_string(rank) + ": " +
             std::to_string(result.wrong[rank]);
  }
  return std::to_string(all) + (all == 1 ? " result is" : " results are") + " wrong (" + ranks +
         "): do not train here before the cause is found";
}

}  // namespace muster::runtime
