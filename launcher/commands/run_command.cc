// SPDX-License-Identifier: Apache-2.0
//
// `muster run`: everything that can be refused is refused here, before the first fork; then the
// process splits into guardian and agent.
#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <optional>
#include <unistd.h>
#include <utility>

#include "agent/shell/guardian.h"
#include "agent/shell/run_directory.h"
#include "agent/shell/scratch.h"
#include "launcher/commands/agent_config.h"
#include "launcher/commands/chaos_plan.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/credentials.h"
#include "launcher/commands/device_options.h"
#include "launcher/commands/early_end.h"
#include "launcher/commands/event_file.h"
#include "launcher/commands/node_facts.h"
#include "launcher/commands/node_slots.h"
#include "launcher/commands/open_files.h"
#include "launcher/commands/option_help.h"
#include "launcher/commands/options.h"
#include "launcher/commands/program.h"
#include "launcher/commands/registry.h"
#include "launcher/commands/run_job.h"
#include "launcher/commands/text.h"
#include "launcher/commands/topology.h"
#include "proto/base/check.h"

namespace muster::launcher {
namespace {

// The flag or variable that an option's value came from.
std::string origin(const CommandLine& line, const char* name) {
  const std::string& source = line.settings[option_index(name)].source;
  return source.starts_with("MUSTER_") || source.starts_with("PET_") ? source : cat("--", name);
}

// Local ranks that a map of --redirects or --tee names and this node does not have. torchrun takes
// single digits only, and ignores those of them that are too high, so that one line can serve nodes
// of different sizes; a higher one on a job of this node alone is a mistake.
std::optional<EarlyEnd> check_streams(const char* name, const StreamChoice& streams,
                                      const RunPlan& plan, CommandLine& line) {
  constexpr std::uint32_t kTorchrunsLast = 9;
  for (const auto& [local_rank, bits] : streams.by_rank) {
    if (local_rank < plan.slots) continue;
    const std::string none =
        cat(origin(line, name), ": there is no local rank ", local_rank, " among ", plan.slots);
    if (local_rank > kTorchrunsLast && plan.options.max_nodes == 1) return refused(none);
    line.notes.push_back(cat(none, " on this node: ignored"));
  }
  return std::nullopt;
}

void check_filter(const RunPlan& plan, CommandLine& line) {
  for (const std::uint32_t local_rank : plan.options.shown_local_ranks) {
    if (local_rank < plan.slots) continue;
    line.notes.push_back(cat(origin(line, "local-ranks-filter"), ": there is no local rank ",
                             local_rank, " among ", plan.slots, " on this node: ignored"));
  }
}

// Whether files were asked for: by a place for them, or by what goes there.
bool wants_log_files(const RunOptions& options, std::uint32_t slots) {
  if (!options.log_dir.empty()) return true;
  if (!options.stdout_filters.empty() || !options.stderr_filters.empty()) return true;
  for (std::uint32_t local_rank = 0; local_rank < slots; ++local_rank) {
    if ((options.redirects.of(local_rank) | options.tee.of(local_rank)) != 0) return true;
  }
  return false;
}

absl::Status check_logs(const RunPlan& plan) {
  const RunOptions& options = plan.options;
  const std::string base = log_dir_of(options, plan.environment);
  if (base == "/dev/null" || !wants_log_files(options, plan.slots)) return absl::OkStatus();
  return agent::check_log_dir(base, plan.job);
}

// Alone, only charged restarts make new generations. A server that others can reach has free ones
// too: a spare may take a leaving node's place even where MAX is 1.
std::optional<Generation> last_generation(const RunOptions& options) {
  const JobPolicy& policy = options.policy;
  if (!options.standalone || policy.max_restarts_window) return std::nullopt;
  return policy.max_restarts;
}

// --devices: from here on it is as if this process had been started with that list.
std::optional<EarlyEnd> narrow_devices(const CommandLine& line, RunPlan& plan) {
  if (plan.options.devices.empty()) return std::nullopt;
  const auto devices = choose_devices(plan.options.devices, device_mask(plan.environment));
  if (!devices.ok()) return refused(cat(origin(line, "devices"), ": ", devices.status().message()));
  plan.environment["CUDA_VISIBLE_DEVICES"] = join(*devices, ",");
  return std::nullopt;
}

std::optional<EarlyEnd> bind_workers(const CommandLine& line, RunPlan& plan) {
  const NumaBinding binding = plan.options.numa_binding;
  if (binding == NumaBinding::kNone) return std::nullopt;
  const auto wrong = [&](const absl::Status& status) {
    return refused(cat(origin(line, "numa-binding"), ": ", status.message()));
  };
  const absl::StatusOr<std::vector<Domain>> domains = find_domains(binding);
  if (!domains.ok()) return wrong(domains.status());
  const auto near = domains_of_devices(visible_gpus(plan.environment), *domains);
  auto placed = place_workers(binding, *domains, plan.slots, near);
  if (!placed.ok()) return wrong(placed.status());
  plan.processors = *std::move(placed);
  return std::nullopt;
}

// What this process opened itself closes at an exec.
std::optional<EarlyEnd> check_kept(const CommandLine& line, const std::vector<int>& kept) {
  for (const int fd : kept) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) continue;
    return refused(cat(origin(line, "keep-fds"), ": descriptor ", fd,
                       " is not open in the process that started muster"));
  }
  return std::nullopt;
}

// Fills in the plan.
std::optional<EarlyEnd> make_plan(CommandLine& line, RunPlan& plan) {
  const RunOptions& options = plan.options;
  if (auto end = narrow_devices(line, plan)) return end;
  const absl::StatusOr<std::uint32_t> slots = count_slots(options.nproc, plan.environment);
  if (!slots.ok()) return refused(cat("--nproc-per-node: ", slots.status().message()));
  plan.slots = *slots;
  if (options.virtual_local_rank) {
    auto devices = own_devices(device_mask(plan.environment), plan.slots);
    if (!devices.ok()) {
      return refused(cat(origin(line, "virtual-local-rank"), ": ", devices.status().message()));
    }
    plan.own_devices = *std::move(devices);
  }
  if (auto end = bind_workers(line, plan)) return end;
  if (auto end = check_kept(line, options.keep_fds)) return end;
  absl::StatusOr<transport::Credentials> credentials = read_credentials(
      [&options](std::string_view flag) {
        return flag == "token-file" ? options.token_file
               : flag == "tls-cert" ? options.tls_cert
               : flag == "tls-key"  ? options.tls_key
                                    : options.tls_ca;
      },
      [&line](const char* flag) { return origin(line, flag); });
  if (!credentials.ok()) return refused(cat(credentials.status().message()));
  plan.credentials = *std::move(credentials);
  if (options.stdin_choice == StdinChoice::kLocalRank && options.stdin_local_rank >= plan.slots) {
    return refused(
        cat("--stdin: there is no local rank ", options.stdin_local_rank, " among ", plan.slots));
  }
  for (const auto& [name, streams] :
       {std::pair{"redirects", &options.redirects}, std::pair{"tee", &options.tee}}) {
    if (auto end = check_streams(name, *streams, plan, line)) return end;
  }
  check_filter(plan, line);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    const absl::Status enough = check_open_files(plan.slots, open_files_inherited(), files);
    if (!enough.ok()) return refused(cat("--nproc-per-node: ", enough.message()));
  }
  plan.host = host_name();
  plan.node = options.node_name;
  if (plan.node.empty()) {
    plan.node = plan.host;
    if (options.node_rank) plan.node += cat("/", *options.node_rank);
  }
  plan.job = options.job_id.empty() ? "job-" + random_hex(8) : options.job_id;
  const absl::Status faults =
      check_fault_plan(options.faults, {.max_nodes = options.max_nodes,
                                        .slots = plan.slots,
                                        .node = plan.node,
                                        .last_generation = last_generation(options)});
  if (!faults.ok()) return refused(cat(origin(line, "chaos"), ": ", faults.message()));
  if (!options.program.empty()) {
    plan.program = resolve_program(options, plan.environment);
    if (!plan.program.ok()) {
      if (line.print_config) {
        line.notes.push_back(plan.program.error);
      } else if (options.max_nodes == 1) {
        return EarlyEnd{plan.program.exit_code, plan.program.error};
      } else {
        // Others wait for this node: it joins, and the exec that fails ends the job for all.
        say(cat(plan.program.error, "; this node joins nevertheless, so that the others are told"));
        plan.program.argv = options.program;
      }
    }
  }
  return std::nullopt;
}

// What would end this process by default is held back from the moment that there is a folder to
// leave behind, until guardian and agent take it.
class HeldSignals {
 public:
  explicit HeldSignals(const std::vector<int>& more) {
    sigset_t held;
    sigemptyset(&held);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2})
      sigaddset(&held, signal);
    for (const int signal : more)
      sigaddset(&held, signal);
    MUSTER_CHECK(sigprocmask(SIG_BLOCK, &held, &before_) == 0);
  }
  // As it was at the start: what workers get.
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_{};
};

// From the first signal to the end of an agent that does not end by itself: the stop budget, what a
// hosting one gives the others to hear of it, and some more. With --linger the job's end is waited
// for.
std::optional<Duration> guardians_limit(const RunOptions& options) {
  constexpr Duration kFarewell = 10s;
  constexpr Duration kMore = 5s;
  if (options.policy.linger) return std::nullopt;
  return options.stop_budget + std::max(options.policy.node_timeout, kFarewell) + kMore;
}

// What jobs whose guardian and agent were killed in one instant could not remove themselves.
void clear_up_after_the_killed(const RunPlan& plan, const std::string& registry) {
  sweep_registry(registry);
  const agent::SweepReport report = agent::sweep_job_folders(plan.folder);
  if (report.killed == 0 || plan.options.quiet) return;
  say(cat("killed ", report.killed,
          " process(es) of jobs of this user whose guardian and agent are dead"));
}

// Last of all: it creates what is missing.
std::optional<EarlyEnd> check_outputs(const CommandLine& line, const RunPlan& plan) {
  const RunOptions& options = plan.options;
  const std::pair<const char*, std::string> troubles[] = {
      {"events", event_file_trouble(options.events, plan.node, plan.job)},
      {"server-events", event_file_trouble(options.server_events, plan.node, plan.job)}};
  for (const auto& [name, trouble] : troubles) {
    if (!trouble.empty()) return refused(cat(origin(line, name), ": ", trouble));
  }
  return std::nullopt;
}

void tell_notes(const CommandLine& line, const RunPlan& plan) {
  if (plan.options.quiet || plan.options.log_level > LogLevel::kWarning) return;
  for (const std::string& note : line.notes)
    say(note);
}

// The defaults that are no constants, for --print-config.
void show_computed(CommandLine& line, const RunPlan& plan) {
  const RunOptions& options = plan.options;
  const std::pair<const char*, std::string> computed[] = {
      {"node-name", plan.node},
      {"log-dir", log_dir_of(options, plan.environment)},
      {"advertise-addr", make_agent_config(plan).node.advertise_addr}};
  for (const auto& [name, value] : computed) {
    Setting& setting = line.settings[option_index(name)];
    if (setting.text.empty()) setting.text = value;
  }
}

}  // namespace

int run_command(const Words& words) {
  RunPlan plan;
  plan.environment = read_environment();
  absl::StatusOr<CommandLine> line = parse_command_line(words, plan.environment);
  if (const auto log = plan.environment.find("MUSTER_TERMINATION_LOG");
      log != plan.environment.end()) {
    plan.options.termination_log = log->second;
  }
  if (!line.ok()) return end_early(plan, refused(cat(line.status().message())));
  if (line->help) return print(run_help()) ? 0 : 1;
  // One that only prints what it would do has no end to explain.
  const std::string termination_log =
      line->print_config ? "none" : line->settings[option_index("termination-log")].text;
  plan.options.termination_log = termination_log;
  // --inherit: as if no other `muster run` had started us, but for its termination log.
  const bool inherits = !line->nested && plan.environment.erase("MUSTER_GENERATION") > 0;
  absl::StatusOr<RunOptions> options = resolve_options(*line, plan.environment);
  if (!options.ok()) return end_early(plan, refused(cat(options.status().message())));
  plan.options = *std::move(options);
  plan.options.termination_log = inherits && termination_log.empty() ? "none" : termination_log;
  if (const auto end = make_plan(*line, plan)) return end_early(plan, *end);
  if (line->print_config) {
    show_computed(*line, plan);
    tell_notes(*line, plan);
    return print(print_config(*line, plan.options, plan.slots, plan.program.argv)) ? 0 : 1;
  }
  if (const auto end = check_outputs(*line, plan)) return end_early(plan, *end);
  tell_notes(*line, plan);

  // The guardian has to know all that are not to end it.
  std::vector<int> signals = plan.options.forward_signals;
  const std::vector<int>& more = plan.options.more_stop_signals;
  signals.insert(signals.end(), more.begin(), more.end());
  const HeldSignals held(signals);
  if (const absl::Status logs = check_logs(plan); !logs.ok()) {
    return end_early(plan, refused(cat("--log-dir: ", logs.message())));
  }
  // Made here, so that guardian and agent share its lock and either can remove it.
  const absl::StatusOr<agent::JobFolder> folder =
      agent::JobFolder::make(plan.environment, getuid());
  if (!folder.ok()) {
    return end_early(plan, {kExitInternal, cat(folder.status().message())});
  }
  plan.folder = folder->path();
  plan.scratch = plan.folder + "/w";
  plan.cgroup = agent::choose_job_cgroup(plan.folder);
  const std::string registry = registry_path(plan.environment);
  const int code = agent::run_guarded(
      [&](agent::Guarded guarded) {
        guarded.start.mask = held.before();
        guarded.start.kept = plan.options.keep_fds;
        return run_job(plan, guarded);
      },
      {.meanwhile = [&] { clear_up_after_the_killed(plan, registry); },
       .more = signals,
       .more_stops = more,
       .limit = guardians_limit(plan.options),
       .killed =
           [&](int exit_code, const std::string& why) {
             note_early_end(plan, {exit_code, why});
           }});
  agent::remove_job_folder(plan.folder, plan.cgroup);
  // An agent that was killed has left its entry.
  if (code != 0) sweep_registry(registry);
  return code;
}

}  // namespace muster::launcher
