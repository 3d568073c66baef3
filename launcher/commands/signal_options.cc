// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/signal_options.h"

#include <algorithm>
#include <csignal>
#include <optional>

#include "launcher/commands/text.h"
#include "proto/base/job.h"

namespace muster::launcher {
namespace {

constexpr int kAlways[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

bool contains(const std::vector<int>& signals, int signal) {
  return std::find(signals.begin(), signals.end(), signal) != signals.end();
}

// Those cannot be caught, or mean something else to a process that has children and a terminal.
bool has_other_use(int signal) {
  for (const int taken : {SIGKILL, SIGSTOP, SIGCHLD, SIGTSTP, SIGCONT, SIGTTIN, SIGTTOU, SIGPIPE}) {
    if (signal == taken) return true;
  }
  return false;
}

Setting& setting_of(CommandLine& line, std::string_view name) {
  return line.settings[option_index(name)];
}

// A launcher inside a worker is stopped by the launcher outside.
bool holds(const EnvironmentMap& environment, const char* name) {
  const auto found = environment.find(name);
  return found != environment.end() && !found->second.empty() &&
         !environment.contains("MUSTER_GENERATION");
}

}  // namespace

void detect_forward_signals(CommandLine& line, const EnvironmentMap& environment) {
  const bool step = holds(environment, "SLURM_JOB_ID") && holds(environment, "SLURM_STEP_ID");
  Setting& forwarded = setting_of(line, "forward-signals");
  if (step && !forwarded.given() && setting_of(line, "standalone").text != "1") {
    forwarded = {"none", "detected"};
  }
}

absl::Status settle_stop_budget(CommandLine& line, const EnvironmentMap& environment,
                                RunOptions& options) {
  constexpr Duration kPodsOwn = 2s;
  const Setting& grace = setting_of(line, "pod-grace");
  Setting& budget = setting_of(line, "stop-budget");
  if (budget.given() || !(grace.given() || holds(environment, "KUBERNETES_SERVICE_HOST"))) {
    return absl::OkStatus();
  }
  if (options.pod_grace <= kPodsOwn) {
    return absl::InvalidArgumentError(cat("--pod-grace ", format_duration(options.pod_grace),
                                          " must be more than ", format_duration(kPodsOwn),
                                          ", which the end of the pod itself takes"));
  }
  options.stop_budget = options.pod_grace - kPodsOwn;
  budget = {format_duration(options.stop_budget), grace.given() ? "--pod-grace" : "detected"};
  return absl::OkStatus();
}

absl::Status settle_signals(const SignalOrigins& origins, RunOptions& options,
                            std::vector<std::string>& notes) {
  std::vector<int> listed;
  for (const std::string_view name : split(options.signals_to_handle, ',')) {
    if (name.empty()) continue;
    const std::optional<int> number = signal_number(std::string(name));
    if (!number) {
      notes.push_back(cat(origins.handled, ": '", name, "' is no signal here: ignored"));
      continue;
    }
    if (has_other_use(*number)) {
      return absl::InvalidArgumentError(
          cat(origins.handled, ": ", signal_name(*number), " cannot stop a job"));
    }
    if (!contains(listed, *number)) listed.push_back(*number);
  }
  std::string unlisted;
  for (const int signal : kAlways) {
    if (!contains(listed, signal))
      unlisted += cat(unlisted.empty() ? "" : ", ", signal_name(signal));
    std::erase(listed, signal);
  }
  if (!unlisted.empty()) {
    notes.push_back(
        cat(origins.handled, ": ", unlisted, " stop the job as well, so that nothing is left"));
  }
  for (const int signal : listed) {
    if (!contains(options.forward_signals, signal)) continue;
    if (origins.forwarded_given) {
      return absl::InvalidArgumentError(
          cat(signal_name(signal), " cannot both stop the job (", origins.handled,
              ") and be passed on without stopping (", origins.forwarded, ")"));
    }
    std::erase(options.forward_signals, signal);
  }
  options.more_stop_signals = std::move(listed);
  return absl::OkStatus();
}

}  // namespace muster::launcher
