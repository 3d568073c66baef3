// SPDX-License-Identifier: Apache-2.0
//
// Several processes of one run on one device, their gradients staged through host memory: one is
// killed in the middle, the others notice and end, all start again from the last state, and the end
// has the bits of a run that nobody disturbed.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <unistd.h>

#include "tests/gpu/context.h"
#include "tests/gpu/process.h"
#include "tests/gpu/rank.h"
#include "tests/gpu/socket_group.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

constexpr std::uint64_t kSteps = 16;
constexpr std::uint64_t kSaveEvery = 4;
constexpr std::uint64_t kKillAt = 6;  // or as much later as the signal takes
constexpr int kPeerLost = 81;

struct Plan {
  int size;
  Precision precision;
  std::string folder;
  std::int64_t generation = 0;
  bool kill = false;  // the last rank, once it has done kKillAt steps
};

struct Outcome {
  bool in_time = false;
  std::vector<ChildEnd> ends;  // by rank
  std::set<std::string> starts, digests;
  std::string errors;
};

std::vector<Child> start_ranks(const Context& context, const Plan& plan, int says) {
  const std::vector<std::vector<int>> sockets = make_sockets(plan.size);
  std::vector<Child> ranks;
  for (std::size_t rank = 0; rank < sockets.size(); ++rank) {
    const RankOrder order{static_cast<int>(rank),
                          sockets[rank],
                          plan.generation,
                          plan.precision,
                          kSteps,
                          kSaveEvery,
                          plan.folder,
                          says,
                          context.on_fakes};
    std::vector<int> keep = sockets[rank];
    keep.push_back(says);
    ranks.push_back(start_child(command_of(context.program, order), keep, false));
  }
  for (const std::vector<int>& ends : sockets) {
    for (const int socket : ends)
      if (socket >= 0) ::close(socket);
  }
  return ranks;
}

Outcome run_ranks(const Context& context, const Plan& plan) {
  const Pipe says = make_pipe();
  const std::vector<Child> ranks = start_ranks(context, plan, says.write);
  ::close(says.write);
  Outcome outcome;
  bool killed = false;
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::seconds(context.on_fakes ? 120 : 30);
  outcome.in_time =
      read_lines(says.read, until, std::chrono::seconds(120), [&](const std::string& line) {
        std::istringstream words(line);
        int rank = 0;
        std::string what;
        std::string rest;
        words >> rank >> what;
        std::getline(words >> std::ws, rest);
        if (what == "start") outcome.starts.insert(rest);
        if (what == "end") outcome.digests.insert(rest);
        if (what == "error") outcome.errors += "rank " + std::to_string(rank) + ": " + rest + "; ";
        const bool here =
            what == "step" && rank == plan.size - 1 && rest == std::to_string(kKillAt);
        if (plan.kill && here && !killed) {
          killed = true;
          ::kill(ranks.back().pid, SIGKILL);
        }
      });
  ::close(says.read);
  for (const Child& rank : ranks) {
    if (!outcome.in_time) ::kill(rank.pid, SIGKILL);
    outcome.ends.push_back(wait_for(rank));
  }
  return outcome;
}

std::string text_of(const Outcome& outcome) {
  std::string text = outcome.in_time ? "" : "not done in time; ";
  for (std::size_t rank = 0; rank < outcome.ends.size(); ++rank)
    text += "rank " + std::to_string(rank) + ": " + outcome.ends[rank].text() + "; ";
  return text + outcome.errors;
}

bool all_done(const Outcome& outcome) {
  for (const ChildEnd& end : outcome.ends)
    if (end.code != 0) return false;
  return outcome.in_time && outcome.digests.size() == 1;
}

// The killed one by its signal, every other because of it.
bool ended_by_the_kill(const Outcome& outcome) {
  for (std::size_t rank = 0; rank + 1 < outcome.ends.size(); ++rank)
    if (outcome.ends[rank].code != kPeerLost) return false;
  return outcome.in_time && outcome.ends.back().signal == SIGKILL;
}

void check_size(const Context& context, int size, Precision precision, const char* name) {
  Report& report = *context.report;
  const std::string of = std::to_string(size) + " ranks, " + name + ": ";
  Plan plan{size, precision, context.folder + "/" + std::to_string(size) + "-undisturbed"};
  std::filesystem::create_directory(plan.folder);
  const Outcome whole = run_ranks(context, plan);
  report.check(of + "they end with the same bits", all_done(whole), text_of(whole));

  plan.folder = context.folder + "/" + std::to_string(size) + "-killed";
  std::filesystem::create_directory(plan.folder);
  plan.kill = true;
  const Outcome killed = run_ranks(context, plan);
  report.check(of + "after kill -9 of one the others end with 81", ended_by_the_kill(killed),
               text_of(killed));
  plan.kill = false;
  plan.generation = 1;
  const Outcome resumed = run_ranks(context, plan);
  const bool in_the_middle = resumed.starts.size() == 1 && *resumed.starts.begin() != "0" &&
                             *resumed.starts.begin() != std::to_string(kSteps);
  report.check(of + "all start again from the last state", in_the_middle, text_of(resumed));
  report.check(of + "killed and resumed, the end has the bits of the undisturbed run",
               all_done(resumed) && resumed.digests == whole.digests, text_of(resumed));
}

}  // namespace

absl::Status check_ranks(const Context& context) {
  check_size(context, 2, Precision::kBf16, "bf16");
  check_size(context, 4, Precision::kF16, "fp16");
  return absl::OkStatus();
}

}  // namespace muster::runtime::cuda::gpu_check
