// SPDX-License-Identifier: Apache-2.0
//
// What a benchmark prints: a table in nccl-tests' manner, and lines of JSON.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "worker_runtime/bench/sweep.h"

namespace muster::runtime {

struct BenchFacts {
  std::string options;              // as one line
  std::string backend;              // tcp, staged, nccl; none for a rank alone
  std::vector<std::string> places;  // by rank: host and device
};

std::vector<std::string> table_head(const BenchFacts& facts);
std::string table_row(const SweepRow& row);
std::vector<std::string> table_end(const SweepResult& result);

std::string row_json(const BenchFacts& facts, const SweepRow& row);
std::string end_json(const BenchFacts& facts, const SweepResult& result);

// "3 results are wrong (rank 1: 1, rank 2: 2): …"; empty: none is.
std::string wrong_text(const SweepResult& result);

}  // namespace muster::runtime
