// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/train/agreement.h"

#include <cstring>
#include <functional>

#include <nlohmann/json.hpp>

#include "worker_runtime/collectives/ops.h"
#include "worker_runtime/train/config.h"

namespace muster::runtime {
namespace {

using nlohmann::json;

std::string to_text(const StartFacts& f) {
  return json{{"config", f.config},
              {"corpus_path", f.corpus_path},
              {"corpus_bytes", f.corpus_bytes},
              {"corpus_digest", f.corpus_digest},
              {"layout_hash", f.layout_hash},
              {"version", f.build.version},
              {"compiler", f.build.compiler},
              {"isa", f.build.isa},
              {"sees_probe", f.sees_probe}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<StartFacts> from_text(const std::string& text) {
  try {
    const json j = json::parse(text);
    StartFacts f;
    j.at("config").get_to(f.config);
    j.at("corpus_path").get_to(f.corpus_path);
    j.at("corpus_bytes").get_to(f.corpus_bytes);
    j.at("corpus_digest").get_to(f.corpus_digest);
    j.at("layout_hash").get_to(f.layout_hash);
    j.at("version").get_to(f.build.version);
    j.at("compiler").get_to(f.build.compiler);
    j.at("isa").get_to(f.build.isa);
    j.at("sees_probe").get_to(f.sees_probe);
    return f;
  } catch (const json::exception&) {
    return absl::FailedPreconditionError("a rank's start record does not read: another build?");
  }
}

// Every rank's, in rank order.
absl::StatusOr<std::vector<std::string>> exchange_texts(Collectives& group,
                                                        const std::string& mine) {
  const auto records = all_gather(group, std::as_bytes(std::span(mine)));
  if (!records.ok()) return records.status();
  std::vector<std::string> texts;
  for (const std::vector<std::byte>& record : *records) {
    texts.emplace_back(record.size(), '\0');
    if (!record.empty()) std::memcpy(texts.back().data(), record.data(), record.size());
  }
  return texts;
}

// "1, 3 and 4" of the ranks for which `differs` holds; empty: none.
std::string ranks_where(const std::vector<StartFacts>& facts,
                        const std::function<bool(const StartFacts&)>& differs) {
  std::string list;
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    if (differs(facts[rank])) list += (list.empty() ? "" : ", ") + std::to_string(rank);
  }
  return list;
}

// Our own kernels give the same bits on all of their instruction sets.
std::string products_of(const StartFacts& facts) {
  return facts.build.isa.substr(0, facts.build.isa.find(", kernels"));
}

}  // namespace

absl::StatusOr<std::vector<std::uint32_t>> exchange_bits(Collectives& group, std::uint32_t mine) {
  const auto records = all_gather(group, std::as_bytes(std::span(&mine, 1)));
  if (!records.ok()) return records.status();
  std::vector<std::uint32_t> bits;
  for (const std::vector<std::byte>& record : *records) {
    if (record.size() != sizeof(mine)) {
      return absl::FailedPreconditionError("a rank's start record does not read: another build?");
    }
    std::memcpy(&bits.emplace_back(), record.data(), sizeof(mine));
  }
  return bits;
}

absl::StatusOr<std::vector<StartFacts>> exchange_facts(Collectives& group, const StartFacts& mine) {
  const auto texts = exchange_texts(group, to_text(mine));
  if (!texts.ok()) return texts.status();
  std::vector<StartFacts> facts;
  for (const std::string& text : *texts) {
    auto read = from_text(text);
    if (!read.ok()) return read.status();
    facts.push_back(*std::move(read));
  }
  return facts;
}

absl::Status compare_products(Collectives& group, const std::string& mine) {
  const auto products = exchange_texts(group, mine);
  if (!products.ok()) return products.status();
  const auto words = [](const std::string& one) { return one.empty() ? "its own" : one; };
  for (std::size_t rank = 1; rank < products->size(); ++rank) {
    const std::string& other = (*products)[rank];
    if (other == products->front()) continue;
    return absl::InternalError("rank " + std::to_string(rank) +
                               " and rank 0 multiply by different algorithms (" + words(other) +
                               " there, " + words(products->front()) +
                               " at rank 0): install one version of cuBLAS on all hosts, on GPUs "
                               "of one kind");
  }
  return absl::OkStatus();
}

absl::Status check_agreement(const std::vector<StartFacts>& facts) {
  const StartFacts& first = facts.front();
  for (std::size_t rank = 1; rank < facts.size(); ++rank) {
    const StartFacts& other = facts[rank];
    const std::string who = "rank " + std::to_string(rank) + " and rank 0 differ in ";
    std::string pointers;
    for (const std::string& pointer : trajectory_differences(first.config, other.config)) {
      pointers += (pointers.empty() ? "" : ", ") + pointer;
    }
    if (!pointers.empty()) {
      return absl::InvalidArgumentError(who + "their configuration: " + pointers);
    }
    if (other.corpus_digest != first.corpus_digest || other.corpus_bytes != first.corpus_bytes) {
      return absl::InvalidArgumentError(
          who + "their corpus: " + other.corpus_path + " has " +
          std::to_string(other.corpus_bytes) + " bytes there, " + first.corpus_path + " has " +
          std::to_string(first.corpus_bytes) + " at rank 0" +
          (other.corpus_bytes == first.corpus_bytes ? ", with other contents" : ""));
    }
    if (other.layout_hash != first.layout_hash) {
      return absl::InvalidArgumentError(who + "the layout of the parameters: other builds?");
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> agreement_notes(const std::vector<StartFacts>& facts, bool probed) {
  std::vector<std::string> notes;
  const BuildFacts& first = facts.front().build;
  const std::string builds = ranks_where(facts, [&first](const StartFacts& f) {
    return f.build.version != first.version || f.build.compiler != first.compiler;
  });
  if (!builds.empty()) {
    notes.push_back("other builds than rank 0's (" + first.version + ", " + first.compiler +
                    ") at rank " + builds + ": results may differ in the last bits");
  }
  const std::string own = products_of(facts.front());
  const std::string isas =
      ranks_where(facts, [&own](const StartFacts& f) { return products_of(f) != own; });
  if (!isas.empty()) {
    notes.push_back("another instruction set than rank 0's (" + own + ") at rank " + isas +
                    ": results depend on which rank computes what");
  }
  const std::string blind = ranks_where(facts, [](const StartFacts& f) { return !f.sees_probe; });
  if (probed && !blind.empty()) {
    notes.push_back("checkpoint.dir is not shared with rank " + blind +
                    ": they load through rank 0, and a restart must keep rank 0 on this host");
  }
  return notes;
}

}  // namespace muster::runtime
