// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/agent_config.h"

#include <unistd.h>

#include "agent/shell/run_directory.h"
#include "agent/shell/termination_log.h"
#include "launcher/commands/gpu_facts.h"
#include "launcher/commands/node_facts.h"
#include "launcher/commands/node_slots.h"
#include "launcher/commands/scheduler.h"
#include "launcher/commands/text.h"
#include "proto/base/rng.h"

namespace muster::launcher {
namespace {

constexpr std::size_t kLongestProgramLine = 1000;
// Drivers give a killed process's memory back within a second or two.
constexpr Duration kDevicePatience = 5s;

// What members must agree on: the words after the options, not where each node's interpreter is.
std::uint64_t program_hash(const RunOptions& options) {
  std::uint64_t hash = hash_text(options.module ? "module" : "program");
  for (const std::string& word : options.program)
    hash = hash_text(word, hash);
  return hash;
}

agent::ConsoleMode console_mode(ConsoleChoice choice) {
  switch (choice) {
    case ConsoleChoice::kAuto: return agent::ConsoleMode::kAuto;
    case ConsoleChoice::kPrefixed: return agent::ConsoleMode::kPrefixed;
    case ConsoleChoice::kLines: return agent::ConsoleMode::kLines;
    case ConsoleChoice::kRaw: return agent::ConsoleMode::kRaw;
    case ConsoleChoice::kPty: return agent::ConsoleMode::kPty;
    case ConsoleChoice::kRank0: return agent::ConsoleMode::kRank0;
    case ConsoleChoice::kNone: return agent::ConsoleMode::kNone;
  }
  return agent::ConsoleMode::kAuto;
}

agent::LogLevel log_level(const RunOptions& options) {
  if (options.quiet) return agent::LogLevel::kError;
  switch (options.log_level) {
    case LogLevel::kDebug: return agent::LogLevel::kDebug;
    case LogLevel::kInfo: return agent::LogLevel::kInfo;
    case LogLevel::kWarning: return agent::LogLevel::kWarning;
    case LogLevel::kError: return agent::LogLevel::kError;
  }
  return agent::LogLevel::kWarning;
}

void describe_gpus(const EnvironmentMap& environment, agent::AgentConfig& config) {
  if (!agent::DevicePlaces{}.has_driver()) return;
  std::string reason;
  config.node.gpus = count_gpus(environment, {}, reason);
  if (config.node.gpus == 0) return;
  config.node.gpu = gpu_line();
  config.device_patience = kDevicePatience;
}

}  // namespace

std::string program_line(const std::vector<std::string>& argv) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%^";
  std::string line;
  for (const std::string& word : argv) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) {
      if (c == '\'') {
        line += "'\\''";
      } else {
        line += c;
      }
    }
    line += '\'';
  }
  if (line.size() > kLongestProgramLine) line = cat(line.substr(0, kLongestProgramLine), " ...");
  return line;
}

agent::AgentConfig make_agent_config(const RunPlan& plan) {
  const RunOptions& options = plan.options;
  agent::AgentConfig config;
  config.spec = {.job = plan.job,
                 .min_nodes = options.min_nodes,
                 .max_nodes = options.max_nodes,
                 .program = program_line(options.program),
                 .program_hash = program_hash(options),
                 .policy = options.policy,
                 .faults = options.faults};
  config.node.name = plan.node;
  config.node.host = plan.host;
  config.node.advertise_addr = options.advertise_addr;
  // A job on this node alone: no name to look up, no interface to choose.
  if (options.standalone && options.advertise_addr.empty()) {
    config.node.advertise_addr = "127.0.0.1";
  }
  config.node.slots = plan.slots;
  config.node.node_rank = options.node_rank;
  if (!options.standalone) {
    config.node.scheduler_index = options.scheduler_index;
    const SchedulerAttempt attempt = scheduler_attempt(plan.environment);
    config.node.scheduler_attempt = attempt.name;
    config.node.scheduler_job = attempt.job;
    config.node.scheduler_restart = attempt.restart;
  }
  config.node.boot_id = boot_id();
  config.node.agent_pid = getpid();
  config.node.user = user_name(plan.environment);
  describe_gpus(plan.environment, config);

  config.argv = plan.program.argv;
  config.substitute_local_rank = !options.no_substitute;
  config.pass_local_rank = options.pass_local_rank;
  config.role_name = options.role;
  config.own_devices = plan.own_devices;
  config.scheduler_strips_pmi = options.scheduler_strips_pmi;
  config.processors = count_cpus({});
  config.hang_timeout = options.hang_timeout;
  config.hang_first = options.hang_first;
  config.silence_timeout = options.silence_timeout;
  config.environment = plan.environment;
  // A worker that starts `muster run` itself must not inherit this one's options.
  for (const std::string& variable : option_variables())
    config.environment.erase(variable);

  config.stop_signal = options.stop_signal;
  config.stop_scope =
      options.stop_whole_group ? agent::SignalScope::kGroup : agent::SignalScope::kLeader;
  config.stop_budget = options.stop_budget;
  config.exit_grace = options.exit_grace;
  config.forward_signals = options.forward_signals;
  config.more_stop_signals = options.more_stop_signals;
  config.master_port_low = options.master_port_low;
  config.master_port_high = options.master_port_high;
  config.master_port_hold = options.master_port_hold;
  config.exit_code =
      options.flat_exit_code ? agent::ExitCodeMode::kFlat : agent::ExitCodeMode::kWorker;
  config.seed = random_number();
  return config;
}

std::string termination_log_of(const RunOptions& options, const EnvironmentMap& environment) {
  if (options.termination_log == "none") return "";
  if (!options.termination_log.empty()) return options.termination_log;
  if (environment.contains("MUSTER_GENERATION")) return "";
  return ::access(agent::kTerminationPath, W_OK) == 0 ? agent::kTerminationPath : "";
}

std::string log_dir_of(const RunOptions& options, const EnvironmentMap& environment) {
  return options.log_dir.empty() ? agent::default_log_dir(environment, getuid()) : options.log_dir;
}

namespace {

agent::ConsoleConfig console_config(const RunPlan& plan) {
  const RunOptions& options = plan.options;
  agent::ConsoleConfig console;
  console.mode = console_mode(options.console);
  console.local_workers = plan.slots;
  console.spool_folder = plan.folder;
  console.prefix = options.log_prefix;
  console.prefix_given = options.log_prefix_given;
  console.must_hear = options.silence_timeout.has_value();
  console.job = plan.job;
  console.node = plan.node;
  console.rotation = options.log_rotation;
  console.stdout_filters = options.stdout_filters;
  console.stderr_filters = options.stderr_filters;
  return console;
}

agent::WorkerStreams streams_of(const RunOptions& options, std::uint32_t local_rank) {
  const unsigned away = options.redirects.of(local_rank);
  const unsigned both = options.tee.of(local_rank);
  const auto& shown_ranks = options.shown_local_ranks;
  const bool shown = shown_ranks.empty() || shown_ranks.contains(local_rank);
  agent::WorkerStreams streams;
  streams.stdout_file = ((away | both) & 1U) != 0;
  streams.stderr_file = ((away | both) & 2U) != 0;
  // A tee wins: the user asked to see it.
  streams.stdout_console = shown && ((away & 1U) == 0 || (both & 1U) != 0);
  streams.stderr_console = shown && ((away & 2U) == 0 || (both & 2U) != 0);
  return streams;
}

}  // namespace

agent::RunnerOptions make_runner_options(const RunPlan& plan, const agent::Guarded& guarded) {
  const RunOptions& options = plan.options;
  agent::RunnerOptions runner;
  runner.start = guarded.start;
  runner.guardian = guarded.guardian;
  runner.guard_page = guarded.page;
  runner.program = plan.program.path;
  runner.processors = plan.processors;
  if (const auto path = plan.environment.find("PATH"); path != plan.environment.end()) {
    runner.search_path = path->second;
  }
  runner.console = console_config(plan);
  runner.standard_input.all = options.stdin_choice == StdinChoice::kAll;
  runner.standard_input.local_rank.reset();
  if (options.stdin_choice == StdinChoice::kLocalRank) {
    runner.standard_input.local_rank = options.stdin_local_rank;
  }
  runner.standard_input.raw =
      agent::resolve_console_mode(runner.console) == agent::ConsoleMode::kRaw;
  runner.log_level = log_level(options);
  runner.termination_log = termination_log_of(options, plan.environment);
  runner.log_dir_given = !options.log_dir.empty();
  runner.log_dir = log_dir_of(options, plan.environment);
  // An id that was made up has had no run before.
  if (!options.job_id.empty()) runner.log_keep = options.log_keep;
  runner.streams = [options](std::uint32_t local_rank) { return streams_of(options, local_rank); };
  runner.events = options.events;
  runner.devices.mask = device_mask(plan.environment);
  runner.scratch_path = plan.scratch;
  runner.job_cgroup = plan.cgroup;
  if (const auto found = plan.environment.find("TORCHELASTIC_ERROR_FILE");
      found != plan.environment.end()) {
    runner.own_error_file = found->second;
  }
  return runner;
}

}  // namespace muster::launcher
