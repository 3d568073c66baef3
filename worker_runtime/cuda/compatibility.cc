// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/compatibility.h"

#include <array>
#include <charconv>
#include <map>
#include <sstream>
#include <utility>

#include "worker_runtime/cuda/driver_api.h"
#include "worker_runtime/cuda/nccl_api.h"

namespace muster::runtime::cuda {
namespace {

constexpr int kLeastCapability = 80;
constexpr const char* kFirstField = "muster-cuda-1";

std::string one_field(std::string text) {
  for (char& c : text)
    if (c == '\t' || c == '\n') c = ' ';
  return text;
}

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

// Host names carry the boot id behind a slash, which is nothing for people.
std::string host_name(const RankFacts& facts) {
  return facts.host.substr(0, facts.host.find('/'));
}

// Containers of one host have names of their own, and its boot id in common.
std::string machine(const RankFacts& facts) {
  return facts.host.substr(facts.host.find('/') + 1);
}

std::string rank_text(const RankFacts& facts, int rank) {
  return "rank " + std::to_string(rank) + " (" + host_name(facts) + ", " + facts.device + ")";
}

std::string driver_text(const RankFacts& facts) {
  const std::string cuda = "CUDA " + cuda_version_text(facts.driver_cuda);
  return facts.driver == 0 ? "a driver for " + cuda
                           : "driver " + std::to_string(facts.driver) + " (" + cuda + ")";
}

// What is wrong with a rank's driver; empty: nothing.
std::string driver_misfit(const RankFacts& facts) {
  if (facts.driver_cuda == 0) return "has no NVIDIA driver: install driver 525 or newer";
  if (facts.driver_cuda < kCuOldestDriver) {
    return "has " + driver_text(facts) + ": install driver 525 or newer";
  }
  const int major = facts.libraries_cuda / 1000;
  const int least = oldest_driver_for(facts.libraries_cuda);
  const bool old = facts.driver_cuda / 1000 < major || (facts.driver != 0 && facts.driver < least);
  if (major == 0 || !old) return "";
  const std::string libraries = "CUDA " + std::to_string(major) + ".x libraries";
  std::string text = "has " + libraries + " and " + driver_text(facts) + ": install ";
  if (least != 0) text += "driver " + std::to_string(least) + " or newer, or ";
  return text + "libraries for CUDA " + std::to_string(facts.driver_cuda / 1000) + ".x there";
}

}  // namespace

// The first number with a point in it that stands by itself.
int driver_branch(const std::string& line) {
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    int branch = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, branch);
    if (error == std::errc{} && stop != end && *stop == '.' && branch > 0) return branch;
  }
  return 0;
}

std::string facts_line(const RankFacts& facts) {
  std::string line = kFirstField;
  for (const std::string& text : {facts.host, facts.device, facts.uuid, facts.pci_bus})
    line += '\t' + one_field(text);
  for (const int number :
       {facts.capability, facts.driver, facts.driver_cuda, facts.libraries_cuda, facts.nccl})
    line += '\t' + std::to_string(number);
  return line;
}

absl::StatusOr<RankFacts> read_facts_line(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == '\t') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  RankFacts facts;
  const std::array<int*, 5> numbers{&facts.capability, &facts.driver, &facts.driver_cuda,
                                    &facts.libraries_cuda, &facts.nccl};
  bool good = fields.size() == 5 + numbers.size() && fields[0] == kFirstField;
  for (std::size_t i = 0; good && i < numbers.size(); ++i) {
    const std::string& field = fields[5 + i];
    const char* end = field.data() + field.size();
    const auto [stop, error] = std::from_chars(field.data(), end, *numbers[i]);
    good = error == std::errc{} && stop == end;
  }
  if (!good) {
    return absl::FailedPreconditionError(
        "a rank's line about its device does not read: another "
        "build?");
  }
  facts.host = fields[1];
  facts.device = fields[2];
  facts.uuid = fields[3];
  facts.pci_bus = fields[4];
  return facts;
}

absl::Status check_rank(const RankFacts& facts, int rank) {
  std::string misfit = driver_misfit(facts);
  if (misfit.empty() && facts.capability < kLeastCapability) {
    misfit = "has compute capability " + capability_text(facts.capability) + ": this build needs " +
             capability_text(kLeastCapability) + " or newer; use another GPU, or device cpu";
  }
  if (misfit.empty() && facts.nccl != 0 && !check_nccl_version(facts.nccl, "").ok()) {
    misfit = "has NCCL " + nccl_version_text(facts.nccl) + ": install " +
             nccl_version_text(kNcclOldest) + " or a newer 2.x (package libnccl2)";
  }
  if (misfit.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(rank_text(facts, rank) + " " + misfit);
}

absl::Status check_ranks(const std::vector<RankFacts>& facts) {
  std::map<std::pair<std::string, std::string>, int> holders;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    const RankFacts& one = facts[i];
    const int rank = static_cast<int>(i);
    absl::Status alone = check_rank(one, rank);
    if (!alone.ok()) return alone;
    if (one.nccl != facts[0].nccl) {
      return absl::FailedPreconditionError(
          rank_text(one, rank) + " has NCCL " + nccl_version_text(one.nccl) + ", rank 0 (" +
          host_name(facts[0]) + ") has " + nccl_version_text(facts[0].nccl) +
          ": install the same version on all hosts (package libnccl2)");
    }
    const auto [holder, first] = holders.try_emplace({machine(one), one.uuid}, rank);
    if (!first) {
      return absl::FailedPreconditionError(
          "ranks " + std::to_string(holder->second) + " and " + std::to_string(rank) +
          " are on one GPU (" + host_name(one) + ", " + one.device + ", " + one.uuid +
          "), which NCCL refuses: start at most one worker a GPU (--nproc-per-node gpu), or set "
          "parallel.backend to staged");
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::runtime::cuda
