// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bench/figures.h"

#include <algorithm>
#include <charconv>

#include "proto/base/check.h"

namespace muster::runtime {
namespace {

struct TypeName {
  WireType type;
  const char* name;
  std::size_t bytes;
};
constexpr TypeName kTypes[] = {
    {WireType::kF32, "fp32", 4}, {WireType::kBf16, "bf16", 2}, {WireType::kF16, "fp16", 2}};

const TypeName& entry(WireType type) {
  const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                         [&](const TypeName& one) { return one.type == type; });
  MUSTER_CHECK(found != std::end(kTypes));
  return *found;
}

}  // namespace

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) return std::nullopt;
  unsigned shift = 0;
  if (rest != end) {
    switch (*rest) {
      case 'K':
      case 'k': shift = 10; break;
      case 'M':
      case 'm': shift = 20; break;
      case 'G':
      case 'g': shift = 30; break;
      default: return std::nullopt;
    }
    if (rest + 1 != end) return std::nullopt;
  }
  if (number > kMostBytes >> shift) return std::nullopt;
  return number << shift;
}

std::optional<WireType> parse_wire_type(std::string_view text) {
  for (const TypeName& one : kTypes)
    if (text == one.name) return one.type;
  return std::nullopt;
}
const char* wire_type_name(WireType type) {
  return entry(type).name;
}
std::size_t wire_type_bytes(WireType type) {
  return entry(type).bytes;
}

std::vector<std::uint64_t> sweep_counts(std::uint64_t least, std::uint64_t most,
                                        std::uint64_t factor, std::uint64_t unit) {
  MUSTER_CHECK(unit > 0 && unit <= least && least <= most && factor >= 2);
  std::vector<std::uint64_t> counts;
  for (std::uint64_t bytes = least;; bytes *= factor) {
    const std::uint64_t count = bytes / unit;
    if (counts.empty() || counts.back() != count) counts.push_back(count);
    if (bytes > most / factor) return counts;
  }
}

double median(std::vector<double> values) {
  MUSTER_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Bandwidth all_reduce_bandwidth(std::uint64_t bytes, double time_us, int ranks) {
  if (time_us <= 0) return {};
  const double algorithm = static_cast<double>(bytes) / time_us / 1000;
  return {algorithm, algorithm * 2 * (ranks - 1) / ranks};
}

}  // namespace muster::runtime
