// SPDX-License-Identifier: Apache-2.0
//
// How far each worker of this node is: reads the progress files and keeps the age of each rank's
// step by the agent's own clock (the worker's may be wrong, and a stopped worker has none).
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "agent/shell/progress_file.h"
#include "proto/base/messages.h"
#include "proto/base/time.h"

namespace muster::agent {

class ProgressSampler {
 public:
  // A worker is about to start; replaces the file of an earlier life.
  void add(std::uint32_t local_rank, std::uint32_t rank, ProgressFile file);
  void remove(std::uint32_t local_rank);

  // One worker now; nullopt: unknown, or it reports nothing.
  std::optional<ProgressFile::Reading> read(std::uint32_t local_rank, Instant now);

  // Gives a worker a fault word while it runs; nothing for one that is not known.
  void ask(std::uint32_t local_rank, std::uint64_t word, std::uint64_t argument);

  // All workers that report, by rank.
  std::vector<RankProgress> sample(Instant now);

 private:
  struct Source {
    std::uint32_t rank = 0;
    ProgressFile file;
    std::optional<std::uint64_t> step;  // last seen
    Instant changed;                    // when it was first seen
  };
  static std::optional<ProgressFile::Reading> look(Source& source, Instant now);

  std::map<std::uint32_t, Source> sources_;  // by local rank
};

}  // namespace muster::agent
