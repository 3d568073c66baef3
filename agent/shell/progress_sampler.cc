// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/progress_sampler.h"

#include <algorithm>
#include <utility>

namespace muster::agent {

void ProgressSampler::add(std::uint32_t local_rank, std::uint32_t rank, ProgressFile file) {
  sources_.insert_or_assign(local_rank, Source{rank, std::move(file), std::nullopt, Instant{}});
}

void ProgressSampler::remove(std::uint32_t local_rank) {
  sources_.erase(local_rank);
}

std::optional<ProgressFile::Reading> ProgressSampler::look(Source& source, Instant now) {
  const auto reading = source.file.read();
  if (reading && source.step != reading->step) {
    source.step = reading->step;
    source.changed = now;
  }
  return reading;
}

std::optional<ProgressFile::Reading> ProgressSampler::read(std::uint32_t local_rank, Instant now) {
  const auto source = sources_.find(local_rank);
  if (source == sources_.end()) return std::nullopt;
  return look(source->second, now);
}

std::vector<RankProgress> ProgressSampler::sample(Instant now) {
  std::vector<RankProgress> out;
  for (auto& [local_rank, source] : sources_) {
    const auto reading = look(source, now);
    if (!reading) continue;
    out.push_back({source.rank, reading->step, reading->checkpoint_step, now - source.changed});
  }
  std::sort(out.begin(), out.end(),
            [](const RankProgress& a, const RankProgress& b) { return a.rank < b.rank; });
  return out;
}

void ProgressSampler::ask(std::uint32_t local_rank, std::uint64_t word, std::uint64_t argument) {
  const auto source = sources_.find(local_rank);
  if (source != sources_.end()) source->second.file.ask(word, argument);
}

}  // namespace muster::agent
