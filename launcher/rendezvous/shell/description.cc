// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/description.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

#include "launcher/rendezvous/shell/control_wire.h"
#include "proto/wire/border.h"

namespace muster::rendezvous {
namespace {

enum class Detail : std::uint8_t { kNone, kBrief, kNodes, kProgress, kWhole };

void trim(v1::Failure& failure) {
  failure.clear_stderr_tail();
  failure.clear_error_file();
}

v1::JobDescription described(const JobView& job, Detail detail) {
  v1::JobDescription out;
  write(job, out);
  if (detail == Detail::kWhole) return out;
  out.mutable_spec()->clear_faults();
  if (out.has_last_failure()) trim(*out.mutable_last_failure());
  if (out.has_outcome()) {
    out.mutable_outcome()->clear_victims();
    if (out.outcome().has_first_cause()) trim(*out.mutable_outcome()->mutable_first_cause());
  }
  if (detail == Detail::kProgress) return out;
  for (v1::MemberDescription& member : *out.mutable_members())
    member.clear_progress();
  if (detail == Detail::kBrief) out.clear_members();
  return out;
}

// In the reply: with its tag and length.
std::size_t bytes_of(const JobView& job, Detail detail) {
  return described(job, detail).ByteSizeLong() + 8;
}

std::vector<Detail> choose(std::size_t most, const std::vector<JobView>& jobs) {
  std::vector<Detail> chosen(jobs.size(), Detail::kNone);
  std::vector<std::size_t> brief(jobs.size());
  std::vector<std::size_t> whole(jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    brief[i] = bytes_of(jobs[i], Detail::kBrief);
    whole[i] = bytes_of(jobs[i], Detail::kWhole);
    if (brief[i] > most) continue;
    chosen[i] = Detail::kBrief;
    most -= brief[i];
  }
  std::vector<std::size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return whole[a] < whole[b]; });
  for (const std::size_t i : order) {
    if (chosen[i] == Detail::kNone) continue;
    for (const Detail detail : {Detail::kWhole, Detail::kProgress, Detail::kNodes}) {
      const std::size_t bytes = detail == Detail::kWhole ? whole[i] : bytes_of(jobs[i], detail);
      if (bytes - brief[i] > most) continue;
      most -= bytes - brief[i];
      chosen[i] = detail;
      break;
    }
  }
  return chosen;
}

std::string left_out(const std::vector<JobView>& jobs, const std::vector<Detail>& chosen) {
  struct Lack {
    Detail of;
    const char* what;
  };
  constexpr std::array kLacks = {Lack{Detail::kNone, ""}, Lack{Detail::kBrief, "the nodes of "},
                                 Lack{Detail::kNodes, "the progress of "},
                                 Lack{Detail::kProgress, "what failures left behind in "}};
  constexpr std::size_t kNamed = 3;
  std::string text;
  for (const Lack& lack : kLacks) {
    std::size_t count = 0;
    std::string names;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (chosen[i] != lack.of) continue;
      if (++count <= kNamed) names += (count == 1 ? "" : ", ") + wire::cut(jobs[i].spec.job, 32);
    }
    if (count == 0) continue;
    text += (text.empty() ? "" : "; ") + std::string(lack.what) + std::to_string(count) +
            (count == 1 ? " job (" : " jobs (") + names + (count > kNamed ? ", ...)" : ")");
  }
  return wire::cut(text, wire::kMaxNameBytes);
}

}  // namespace

void describe_within(std::size_t most, const std::vector<JobView>& jobs, v1::DescribeReply& reply) {
  std::size_t bytes = 0;
  for (const JobView& job : jobs) {
    v1::JobDescription* whole = reply.add_jobs();
    *whole = described(job, Detail::kWhole);
    bytes += whole->ByteSizeLong() + 8;
    if (bytes > most) break;
  }
  if (bytes <= most) return;
  reply.clear_jobs();
  const std::vector<Detail> chosen = choose(most, jobs);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (chosen[i] != Detail::kNone) *reply.add_jobs() = described(jobs[i], chosen[i]);
  }
  reply.set_left_out(left_out(jobs, chosen));
}

}  // namespace muster::rendezvous
