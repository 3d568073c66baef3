// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/engine/device_choice.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "worker_runtime/cuda/model/device_gpt.h"

namespace muster::runtime::cuda {
namespace {

using nlohmann::json;

// Besides rank 0's.
constexpr std::size_t kSettingsShown = 8;

std::string asked_for(DeviceChoice device) {
  return device == DeviceChoice::kCuda ? "device cuda" : "device auto";
}

std::string rank_text(std::size_t rank, const DeviceReport& report) {
  const std::string host = report.facts.host.substr(0, report.facts.host.find('/'));
  return "rank " + std::to_string(rank) + (host.empty() ? "" : " (" + host + ")");
}

absl::StatusOr<DeviceDecision> on_cpu(const DeviceWish& wish, const std::string& why) {
  if (wish.device == DeviceChoice::kCuda) {
    return absl::InternalError("device cuda: " + why);
  }
  if (wish.backend == "nccl" || wish.backend == "staged") {
    return absl::InternalError(wish.backend_name + " " + wish.backend +
                               " needs a CUDA device: " + why);
  }
  return DeviceDecision{false, DeviceBackend::kAlone, {"device auto: the CPU, since " + why}};
}

// Why NCCL cannot serve these ranks; empty: it can.
std::string nccl_obstacle(const std::vector<DeviceReport>& reports) {
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const DeviceReport& one = reports[rank];
    if (!one.why_not_nccl.empty()) return rank_text(rank, one) + ": " + one.why_not_nccl;
  }
  std::vector<RankFacts> facts;
  for (const DeviceReport& one : reports)
    facts.push_back(one.facts);
  return std::string(check_ranks(facts).message());
}

// Rank 0's, and of every other set of settings the first rank that has it: a file of one host goes
// unseen otherwise.
void add_settings(const std::vector<DeviceReport>& reports, std::vector<std::string>& notes) {
  struct Holders {
    std::size_t first;
    std::size_t others;
  };
  std::vector<Holders> sets;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const auto known = std::find_if(sets.begin(), sets.end(), [&](const Holders& set) {
      return reports[set.first].settings == reports[rank].settings;
    });
    if (known != sets.end()) {
      ++known->others;
    } else if (sets.size() <= kSettingsShown) {
      sets.push_back({rank, 0});
    }
  }
  for (const Holders& set : sets) {
    const DeviceReport& report = reports[set.first];
    if (set.first == 0) {
      for (std::string& line : describe_settings(report.settings))
        notes.push_back(std::move(line));
      continue;
    }
    std::string who = rank_text(set.first, report);
    if (set.others > 0) who += " and " + std::to_string(set.others) + " more";
    if (report.settings.empty()) notes.push_back(who + ": no NCCL settings");
    for (const std::string& line : describe_settings(report.settings))
      notes.push_back(who + ": " + line);
  }
}

absl::Status choose_backend(const DeviceWish& wish, const std::vector<DeviceReport>& reports,
                            DeviceDecision& decision) {
  if (wish.deterministic) {
    decision.notes.emplace_back(
        "parallel.deterministic: gradients are added on the host, in an order that does not depend "
        "on the number of ranks");
    return absl::OkStatus();
  }
  if (reports.size() == 1) return absl::OkStatus();
  decision.backend = DeviceBackend::kStaged;
  if (wish.backend == "staged") return absl::OkStatus();
  const std::string obstacle = nccl_obstacle(reports);
  if (obstacle.empty()) {
    decision.backend = DeviceBackend::kNccl;
    add_settings(reports, decision.notes);
  } else if (wish.backend == "nccl") {
    return absl::InternalError(wish.backend_name + " nccl: " + obstacle);
  } else {
    decision.notes.push_back("gradients go through host memory (" + wish.backend_name +
                             " staged), since " + obstacle);
  }
  return absl::OkStatus();
}

}  // namespace

std::string report_line(const DeviceReport& report) {
  json settings = json::array();
  for (const NcclSetting& one : report.settings)
    settings.push_back({one.name, one.value, one.source});
  return json{{"why_not", report.why_not},
              {"why_not_nccl", report.why_not_nccl},
              {"libraries", report.libraries},
              {"facts", facts_line(report.facts)},
              {"settings", settings}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<DeviceReport> read_report_line(const std::string& line) {
  DeviceReport report;
  std::string facts;
  try {
    const json document = json::parse(line);
    document.at("why_not").get_to(report.why_not);
    document.at("why_not_nccl").get_to(report.why_not_nccl);
    document.at("libraries").get_to(report.libraries);
    document.at("facts").get_to(facts);
    for (const json& one : document.at("settings"))
      report.settings.push_back({one.at(0).get<std::string>(), one.at(1).get<std::string>(),
                                 one.at(2).get<std::string>()});
  } catch (const json::exception&) {
    return absl::FailedPreconditionError(
        "a rank's line about its device does not read: another build?");
  }
  auto read = read_facts_line(facts);
  if (!read.ok()) return read.status();
  report.facts = *std::move(read);
  return report;
}

DeviceWish wish_of(const TrainConfig& config) {
  DeviceWish wish;
  wish.device = config.device;
  wish.backend = config.parallel.backend;
  wish.deterministic = config.parallel.deterministic;
  const std::int64_t head = config.model.n_embd / config.model.n_head;
  if (head > kLargestHead) {
    wish.why_not = "heads have " + std::to_string(head) +
                   " elements (model.n_embd / n_head), and at most " +
                   std::to_string(kLargestHead) + " can be computed on a device";
  }
  return wish;
}

absl::StatusOr<DeviceDecision> decide_device(const DeviceWish& wish,
                                             const std::vector<DeviceReport>& reports) {
  if (!wish.why_not.empty()) return on_cpu(wish, wish.why_not);
  const auto has_none = [](const DeviceReport& report) { return !report.why_not.empty(); };
  const auto without = std::find_if(reports.begin(), reports.end(), has_none);
  const auto with = std::find_if_not(reports.begin(), reports.end(), has_none);
  const auto rank_of = [&](auto at) {
    return rank_text(static_cast<std::size_t>(at - reports.begin()), *at);
  };
  if (with == reports.end()) return on_cpu(wish, reports.front().why_not);
  if (without != reports.end()) {
    return absl::InternalError(asked_for(wish.device) + ": " + rank_of(without) +
                               " has no device to use (" + without->why_not + "), " +
                               rank_of(with) + " has " + with->facts.device +
                               ": all ranks compute alike; mend the one, or set device to cpu");
  }
  DeviceDecision decision;
  decision.on_device = true;
  decision.notes.push_back(asked_for(wish.device) + ": " + reports.front().facts.device + ", " +
                           reports.front().libraries);
  const absl::Status chosen = choose_backend(wish, reports, decision);
  if (!chosen.ok()) return chosen;
  return decision;
}

}  // namespace muster::runtime::cuda
