// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/positions.h"

#include <array>
#include <charconv>

namespace muster::runtime::cuda {
namespace {

// So many ranks are listed by name; the rest by number.
constexpr std::size_t kNamed = 8;

std::string type_text(int type) {
  switch (type) {
    case kNcclU8: return "u8";
    case kNcclU64: return "u64";
    case kNcclF16: return "f16";
    case kNcclF32: return "f32";
    case kNcclF64: return "f64";
    case kNcclBf16: return "bf16";
    default: return "type " + std::to_string(type);
  }
}

const char* operation_text(NcclOperation operation) {
  switch (operation) {
    case NcclOperation::kAllReduce: return "all-reduce";
    case NcclOperation::kReduceScatter: return "reduce-scatter";
    case NcclOperation::kAllGather: return "all-gather";
    case NcclOperation::kBroadcast: return "broadcast";
  }
  return "?";
}

bool same_call(const CollectiveRecord& a, const CollectiveRecord& b) {
  return a.operation == b.operation && a.type == b.type && a.count == b.count;
}

// "rank 3 does not answer", "ranks 3, 4 and 9 more do not answer".
std::string sentence(const std::vector<std::size_t>& ranks, const std::string& one,
                     const std::string& several) {
  std::string list;
  for (std::size_t i = 0; i < ranks.size() && i < kNamed; ++i)
    list += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > kNamed) list += " and " + std::to_string(ranks.size() - kNamed) + " more";
  return ranks.size() == 1 ? "rank " + list + " " + one : "ranks " + list + " " + several;
}

}  // namespace

std::string record_text(const CollectiveRecord& record) {
  return std::string(operation_text(record.operation)) + " " + std::to_string(record.sequence) +
         " (" + type_text(record.type) + " x " + std::to_string(record.count) + ")";
}

std::string position_line(const Position& position) {
  const CollectiveRecord& oldest = position.oldest;
  return std::to_string(position.enqueued) + " " + std::to_string(oldest.sequence) + " " +
         std::to_string(static_cast<int>(oldest.operation)) + " " + std::to_string(oldest.type) +
         " " + std::to_string(oldest.count);
}

absl::StatusOr<Position> read_position_line(const std::string& line) {
  std::array<std::uint64_t, 5> numbers{};
  const char* at = line.data();
  const char* end = at + line.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto [stop, error] = std::from_chars(at, end, numbers[i]);
    const bool last = i + 1 == numbers.size();
    if (error != std::errc{} || (last ? stop != end : stop == end || *stop != ' ')) {
      return absl::FailedPreconditionError("a rank's position does not read: another build?");
    }
    at = last ? stop : stop + 1;
  }
  Position position;
  position.enqueued = numbers[0];
  position.oldest.sequence = numbers[1];
  position.oldest.operation = static_cast<NcclOperation>(numbers[2] & 0xffU);
  position.oldest.type = static_cast<int>(numbers[3] & 0xffU);
  position.oldest.count = numbers[4];
  return position;
}

Findings compare_positions(int rank, const CollectiveRecord& mine,
                           const std::vector<std::optional<Position>>& all) {
  Findings findings;
  std::vector<std::size_t> silent;
  std::vector<std::size_t> behind;
  std::string differs;
  for (std::size_t other = 0; other < all.size(); ++other) {
    if (other == static_cast<std::size_t>(rank)) continue;
    if (!all[other]) {
      silent.push_back(other);
    } else if (mine.sequence != 0 && all[other]->enqueued < mine.sequence) {
      behind.push_back(other);
    } else if (mine.sequence != 0 && all[other]->oldest.sequence == mine.sequence &&
               !same_call(all[other]->oldest, mine)) {
      findings.mismatch = true;
      if (differs.empty()) {
        differs =
            "rank " + std::to_string(other) + " came to it with " + record_text(all[other]->oldest);
      }
    }
  }
  std::vector<std::string> parts;
  if (!differs.empty()) parts.push_back(differs);
  if (!silent.empty()) parts.push_back(sentence(silent, "does not answer", "do not answer"));
  if (!behind.empty())
    parts.push_back(sentence(behind, "has not come to it", "have not come to it"));
  for (const std::string& part : parts)
    findings.text += (findings.text.empty() ? "" : "; ") + part;
  if (silent.size() == 1) findings.silent = static_cast<int>(silent.front());
  return findings;
}

}  // namespace muster::runtime::cuda
