// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bench/sweep.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <span>

#include "proto/base/check.h"
#include "worker_runtime/collectives/ops.h"

namespace muster::runtime {
namespace {

// What a rank says after each size.
struct Said {
  double time_us = 0;
  std::uint64_t wrong = 0;
  std::uint64_t stop = 0;
};

class Sweep {
 public:
  Sweep(Collectives& group, SumTarget& target, const SweepOptions& options, Overseer& overseer)
      : group_(group), target_(target), options_(options), overseer_(overseer) {
    MUSTER_CHECK(options.iterations > 0 && options.warmup >= 0);
  }

  absl::StatusOr<std::vector<Said>> measure(std::uint64_t count) {
    std::vector<double> times;
    for (int i = -options_.warmup; i < options_.iterations; ++i) {
      const auto time_us = once(count);
      if (!time_us.ok()) return time_us.status();
      if (i >= 0) times.push_back(*time_us);
    }
    const auto wrong = target_.wrong(count, round_);
    if (!wrong.ok()) return wrong.status();
    return tell({median(std::move(times)), *wrong, overseer_.stop_requested() ? 1U : 0U});
  }

 private:
  absl::StatusOr<double> once(std::uint64_t count) {
    absl::Status status = target_.fill(count, ++round_);
    if (!status.ok()) return status;
    overseer_.collective_begins();
    const auto begin = std::chrono::steady_clock::now();
    status = target_.sum(count);
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    overseer_.collective_ends();
    if (!status.ok()) return status;
    return time.count();
  }

  // By rank.
  absl::StatusOr<std::vector<Said>> tell(const Said& mine) {
    overseer_.collective_begins();
    const auto lines = all_gather(group_, std::as_bytes(std::span(&mine, 1)));
    overseer_.collective_ends();
    if (!lines.ok()) return lines.status();
    std::vector<Said> all;
    for (const std::vector<std::byte>& line : *lines) {
      if (line.size() != sizeof(Said)) {
        return absl::FailedPreconditionError("ranks of different builds");
      }
      std::memcpy(&all.emplace_back(), line.data(), sizeof(Said));
    }
    return all;
  }

  Collectives& group_;
  SumTarget& target_;
  const SweepOptions& options_;
  Overseer& overseer_;
  std::uint64_t round_ = 0;
};

}  // namespace

double SweepResult::mean_bus() const {
  if (rows.empty()) return 0;
  double sum = 0;
  for (const SweepRow& row : rows)
    sum += row.bandwidth.bus;
  return sum / static_cast<double>(rows.size());
}

std::uint64_t SweepResult::all_wrong() const {
  return std::accumulate(wrong.begin(), wrong.end(), std::uint64_t{0});
}

absl::StatusOr<SweepResult> run_sweep(Collectives& group, SumTarget& target,
                                      const SweepOptions& options, Overseer& overseer,
                                      const std::function<void(const SweepRow&)>& on_row) {
  Sweep sweep(group, target, options, overseer);
  SweepResult result;
  result.wrong.resize(static_cast<std::size_t>(group.size()));
  for (const std::uint64_t count : options.counts) {
    const auto said = sweep.measure(count);
    if (!said.ok()) return said.status();
    SweepRow row{
        .bytes = count * wire_type_bytes(options.type), .count = count, .type = options.type};
    for (std::size_t rank = 0; rank < said->size(); ++rank) {
      const Said& one = (*said)[rank];
      row.time_us = std::max(row.time_us, one.time_us);
      row.wrong += one.wrong;
      result.wrong[rank] += one.wrong;
      if (one.stop != 0) result.stopped = true;
    }
    row.bandwidth = all_reduce_bandwidth(row.bytes, row.time_us, group.size());
    on_row(row);
    result.rows.push_back(row);
    if (result.stopped) break;
  }
  return result;
}

}  // namespace muster::runtime
