// SPDX-License-Identifier: Apache-2.0
//
// The control all-reduce: everybody's record to everybody, then one pure function of all of them.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include <absl/strings/str_cat.h>

#include "worker_runtime/collectives/ops.h"

namespace muster::runtime {
namespace {

// Fixed part of a record as it travels; the two vectors follow. Ranks of one job run the same
// build on the same byte order (their configuration fingerprint is compared first).
struct FixedPart {
  std::uint64_t fingerprint = 0;
  std::uint64_t first_bad = 0;
  std::uint64_t tokens = 0;
  double loss_sum = 0;
  std::uint64_t norm_partials = 0;
  std::uint64_t micro_losses = 0;
  std::uint32_t found_inf = 0;
  std::uint32_t stop = 0;
};
static_assert(std::is_trivially_copyable_v<FixedPart> && sizeof(FixedPart) == 56);

std::vector<std::byte> pack(const Control& control) {
  const FixedPart fixed{control.fingerprint,
                        control.first_bad,
                        control.tokens,
                        control.loss_sum,
                        control.norm_partials.size(),
                        control.micro_losses.size(),
                        control.found_inf ? 1U : 0U,
                        control.stop ? 1U : 0U};
  const std::size_t norm_bytes = control.norm_partials.size() * sizeof(double);
  const std::size_t loss_bytes = control.micro_losses.size() * sizeof(double);
  std::vector<std::byte> bytes(sizeof(fixed) + norm_bytes + loss_bytes);
  std::memcpy(bytes.data(), &fixed, sizeof(fixed));
  if (norm_bytes > 0) {
    std::memcpy(bytes.data() + sizeof(fixed), control.norm_partials.data(), norm_bytes);
  }
  if (loss_bytes > 0) {
    std::memcpy(bytes.data() + sizeof(fixed) + norm_bytes, control.micro_losses.data(), loss_bytes);
  }
  return bytes;
}

absl::StatusOr<Control> unpack(const std::vector<std::byte>& bytes, std::size_t rank) {
  FixedPart fixed;
  const auto bad = [rank] {
    return absl::FailedPreconditionError(
        absl::StrCat("control record of rank ", rank, " has an impossible length"));
  };
  if (bytes.size() < sizeof(fixed)) return bad();
  std::memcpy(&fixed, bytes.data(), sizeof(fixed));
  const std::size_t doubles = (bytes.size() - sizeof(fixed)) / sizeof(double);
  if (fixed.norm_partials > doubles || fixed.micro_losses != doubles - fixed.norm_partials) {
    return bad();
  }
  Control control;
  control.fingerprint = fixed.fingerprint;
  control.first_bad = fixed.first_bad;
  control.tokens = fixed.tokens;
  control.loss_sum = fixed.loss_sum;
  control.found_inf = fixed.found_inf != 0;
  control.stop = fixed.stop != 0;
  control.norm_partials.resize(fixed.norm_partials);
  control.micro_losses.resize(fixed.micro_losses);
  const std::byte* at = bytes.data() + sizeof(fixed);
  const std::size_t norm_bytes = fixed.norm_partials * sizeof(double);
  if (norm_bytes > 0) std::memcpy(control.norm_partials.data(), at, norm_bytes);
  if (!control.micro_losses.empty()) {
    std::memcpy(control.micro_losses.data(), at + norm_bytes, fixed.micro_losses * sizeof(double));
  }
  return control;
}

}  // namespace

absl::StatusOr<Control> control_all_reduce(Collectives& group, const Control& mine) {
  const auto records = all_gather(group, pack(mine));
  if (!records.ok()) return records.status();

  Control all;
  all.fingerprint = mine.fingerprint;
  for (std::size_t rank = 0; rank < records->size(); ++rank) {
    const absl::StatusOr<Control> one = unpack((*records)[rank], rank);
    if (!one.ok()) return one.status();
    if (one->fingerprint != mine.fingerprint) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " and rank ", group.rank(),
                       " disagree on configuration or layout (fingerprints ",
                       absl::Hex(one->fingerprint), " and ", absl::Hex(mine.fingerprint), ")"));
    }
    all.found_inf = all.found_inf || one->found_inf;
    all.first_bad = std::min(all.first_bad, one->first_bad);
    all.stop = all.stop || one->stop;
    all.tokens += one->tokens;
    all.loss_sum += one->loss_sum;
    all.norm_partials.insert(all.norm_partials.end(), one->norm_partials.begin(),
                             one->norm_partials.end());
    all.micro_losses.insert(all.micro_losses.end(), one->micro_losses.begin(),
                            one->micro_losses.end());
  }
  if (!all.micro_losses.empty()) {
    all.loss_sum = 0;
    for (const double loss : all.micro_losses)
      all.loss_sum += loss;
  }
  return all;
}

}  // namespace muster::runtime
