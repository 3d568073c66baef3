// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/signal_options.h"

#include <csignal>

#include <catch2/catch.hpp>

#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

constexpr const char* kTorchruns = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

struct Settled {
  RunOptions options;
  std::vector<std::string> notes;
  std::string error;
};

Settled settle(const std::string& handled, std::vector<int> forwarded = {SIGUSR1, SIGUSR2},
               bool given = false) {
  Settled settled;
  settled.options.signals_to_handle = handled;
  settled.options.forward_signals = std::move(forwarded);
  const SignalOrigins origins{"--signals-to-handle", "--forward-signals", given};
  const absl::Status status = settle_signals(origins, settled.options, settled.notes);
  settled.error = std::string(status.message());
  return settled;
}

struct Resolved {
  CommandLine line;
  RunOptions options;
  std::string error;
};

Resolved resolve(std::vector<std::string> words, const EnvironmentMap& environment = {}) {
  words.emplace_back("/bin/true");
  Resolved resolved;
  auto line = parse_command_line(words, environment);
  REQUIRE(line.ok());
  resolved.line = *std::move(line);
  auto options = resolve_options(resolved.line, environment);
  if (options.ok()) {
    resolved.options = *std::move(options);
  } else {
    resolved.error = std::string(options.status().message());
  }
  return resolved;
}

Setting setting(const Resolved& resolved, std::string_view name) {
  return resolved.line.settings[option_index(name)];
}

}  // namespace

TEST_CASE("torchrun's default adds nothing and says nothing") {
  const Settled settled = settle(kTorchruns);
  CHECK(settled.options.more_stop_signals.empty());
  CHECK(settled.options.forward_signals == std::vector<int>{SIGUSR1, SIGUSR2});
  CHECK(settled.notes.empty());
}

TEST_CASE("a further signal stops, and is not passed on any more") {
  const Settled settled = settle(cat(kTorchruns, ",USR1,SIGUSR1,SIGXCPU"));
  CHECK(settled.options.more_stop_signals == std::vector<int>{SIGUSR1, SIGXCPU});
  CHECK(settled.options.forward_signals == std::vector<int>{SIGUSR2});
  CHECK(settled.notes.empty());
}

TEST_CASE("what cannot be is refused or said") {
  CHECK(settle("SIGTERM,SIGKILL").error == "--signals-to-handle: SIGKILL cannot stop a job");
  CHECK(settle("SIGTERM,CONT").error == "--signals-to-handle: SIGCONT cannot stop a job");
  CHECK(settle(cat(kTorchruns, ",USR1"), {SIGUSR1}, true).error ==
        "SIGUSR1 cannot both stop the job (--signals-to-handle) and be passed on without stopping "
        "(--forward-signals)");
  const Settled settled = settle("TERM,BREAK");
  REQUIRE(settled.notes.size() == 2);
  CHECK(settled.notes[0] == "--signals-to-handle: 'BREAK' is no signal here: ignored");
  CHECK(settled.notes[1] ==
        "--signals-to-handle: SIGINT, SIGHUP, SIGQUIT stop the job as well, so that nothing is "
        "left");
}

TEST_CASE("a step of Slurm forwards signals itself") {
  const EnvironmentMap step{{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}};
  const auto forwarded = [](const std::vector<std::string>& words, const EnvironmentMap& given) {
    return resolve(words, given).options.forward_signals.size();
  };
  CHECK(forwarded({}, {}) == 4);
  CHECK(forwarded({}, step) == 0);
  CHECK(forwarded({"--forward-signals=USR2"}, step) == 1);
  CHECK(forwarded({"--standalone"}, step) == 4);
  CHECK(forwarded({}, {{"SLURM_JOB_ID", "7"}}) == 4);  // a script of its own, outside of a step
  EnvironmentMap nested = step;
  nested["MUSTER_GENERATION"] = "0";
  CHECK(forwarded({}, nested) == 4);
  CHECK(setting(resolve({}, step), "forward-signals") == Setting{"none", "detected"});
}

TEST_CASE("the stop budget in a pod is what the pod has, less 2 s") {
  const EnvironmentMap pod{{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
  CHECK(resolve({}).options.stop_budget == 30s);
  const Resolved in_pod = resolve({}, pod);
  CHECK(in_pod.options.stop_budget == 28s);
  CHECK(setting(in_pod, "stop-budget") == Setting{"28s", "detected"});
  CHECK(in_pod.line.notes.empty());
  CHECK(resolve({"--pod-grace=60s"}, pod).options.stop_budget == 58s);
  CHECK(resolve({"--pod-grace=60s"}).options.stop_budget == 58s);
  CHECK(resolve({"--stop-budget=9s"}, pod).options.stop_budget == 9s);
  CHECK(resolve({"--pod-grace=2s"}, pod).error ==
        "--pod-grace 2s must be more than 2s, which the end of the pod itself takes");
}

}  // namespace muster::launcher
