// SPDX-License-Identifier: Apache-2.0
//
// Before the first step every rank tells the others what it is about to do. Ranks that would
// train something different are named then, not after a loss that looks odd.
//
// Thread rule: one thread; blocks on peers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker_runtime/checkpoint/manifest.h"
#include "worker_runtime/collectives/collectives.h"

namespace muster::runtime {

struct StartFacts {
  std::string config;  // config_json
  std::string corpus_path;
  std::uint64_t corpus_bytes = 0;
  std::uint64_t corpus_digest = 0;
  std::uint64_t layout_hash = 0;
  BuildFacts build;
  bool sees_probe = false;  // reads rank 0's probe file in checkpoint.dir
};

// One record a rank, in rank order; the same on every rank. Errors are the collective's.
absl::StatusOr<std::vector<StartFacts>> exchange_facts(Collectives& group, const StartFacts& mine);

// kInvalidArgument naming the first rank that differs from rank 0 and in what: configuration
// (what the numbers depend on), corpus, layout.
absl::Status check_agreement(const std::vector<StartFacts>& facts);

// kInternal naming the first rank whose Engine::products() are not rank 0's: what is computed would
// depend on which rank computes it. Errors of the collective keep their code.
absl::Status compare_products(Collectives& group, const std::string& mine);

// Every rank's `mine`, in rank order. Errors are the collective's.
absl::StatusOr<std::vector<std::uint32_t>> exchange_bits(Collectives& group, std::uint32_t mine);

// One line each for people: ranks whose build or products' instruction set differs from rank 0's,
// and ranks that do not see the checkpoint directory (if `probed`).
std::vector<std::string> agreement_notes(const std::vector<StartFacts>& facts, bool probed);

}  // namespace muster::runtime
