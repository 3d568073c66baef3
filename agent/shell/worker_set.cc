// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/worker_set.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <string>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/oom.h"
#include "agent/shell/descendants.h"
#include "agent/shell/error_file.h"
#include "agent/shell/fault_injector.h"
#include "agent/shell/io_loop.h"
#include "agent/shell/kernel_log_reader.h"
#include "agent/shell/oom_counter.h"
#include "agent/shell/progress_sampler.h"
#include "agent/shell/scratch.h"
#include "agent/shell/stdin_feed.h"
#include "agent/shell/worker_process.h"
#include "proto/base/check.h"

namespace muster::agent {

namespace {

// One life of one worker.
struct Life {
  WorkerPlan plan;
  Generation generation = kNoGeneration;
  WorkerPaths paths;
  bool has_rank_folder = false;  // made before the start
  std::unique_ptr<WorkerProcess> process;
  bool stop_sent = false;  // by us: its end is not a failure of its own
  bool kill_sent = false;  // SIGKILL, by us
  bool gone = false;
  std::unique_ptr<boost::asio::steady_timer> spared;  // a signal that waits for its own end
};

}  // namespace

struct WorkerSet::State : std::enable_shared_from_this<WorkerSet::State> {
  explicit State(WorkerSetParts given)
      : parts(std::move(given)),
        supervisor(parts.io),
        input(parts.io, parts.options.standard_input),
        scratch(parts.options.scratch_path),
        faults(parts.io, fault_hooks()) {}

  FaultHooks fault_hooks() {
    FaultHooks hooks;
    hooks.signal = [this](std::uint32_t local_rank, int signal) {
      const auto life = lives.find(local_rank);
      if (life == lives.end() || !life->second->process || !life->second->process->alive()) {
        return false;
      }
      if (signal == SIGKILL) life->second->kill_sent = true;
      life->second->process->signal(signal, SignalScope::kLeader);
      return true;
    };
    hooks.progress = [this](std::uint32_t local_rank) {
      return progress.read(local_rank, IoLoop::now());
    };
    hooks.fired = [this](std::uint32_t index, std::optional<std::uint32_t> rank) {
      parts.happened(FaultFired{index, rank});
    };
    hooks.kill_agent = [] { ::kill(::getpid(), SIGKILL); };
    hooks.preempt = [] { ::kill(::getpid(), SIGTERM); };
    hooks.disturb_link = parts.options.disturb_link;
    hooks.ask = [this](std::uint32_t local_rank, std::uint64_t word, std::uint64_t argument) {
      progress.ask(local_rank, word, argument);
    };
    return hooks;
  }

  void start_one(const std::shared_ptr<Life>& life, const WorkerStreams& streams);
  absl::Status prepare_files(Life& life, FaultWord& word);
  void prepare_logs(Life& life, const WorkerStreams& streams, WorkerOutput& output);
  void prepare_picked(WorkerOutput& output);
  void launch(const std::shared_ptr<Life>& life, const WorkerOutput& output);
  WorkerCallbacks callbacks_of(const std::shared_ptr<Life>& life);

  void on_spawned(Life& life, pid_t pid);
  void on_ended(const std::shared_ptr<Life>& life, const WorkerExit& exit);
  void on_gone(const std::shared_ptr<Life>& life);
  void could_not_start(const std::shared_ptr<Life>& life, const std::string& reason, int error);
  bool killed_for_memory(pid_t pid);
  std::string what_the_kernel_says(const WorkerExit& exit, bool oom);
  void signal(const std::shared_ptr<Life>& life, const SignalWorker& order);
  void signal_later(const std::shared_ptr<Life>& life, SignalWorker order);
  void keep_failure(const Life& life, pid_t pid, const std::string& tail);
  void write_meta(const Life& life, pid_t pid);
  // All ranks of all generations meet the same trouble with log folders: that is one line.
  void warn(const absl::Status& status) {
    if (status.ok() || std::exchange(log_trouble_told, true)) return;
    parts.log.say(Severity::kWarning,
                  std::string(status.message()) +
                      " (--log-dir); output meant for log files is shown here, the job goes on");
  }

  WorkerSetParts parts;
  Supervisor supervisor;
  StdinFeed input;
  Scratch scratch;
  ProgressSampler progress;
  OomCounter oom_counter{parts.options.proc_root, parts.options.cgroup_root};
  OomLedger oom_ledger;
  KernelLogReader kernel_log;
  const bool hosts_pids = has_the_hosts_pids();
  std::map<std::uint32_t, std::shared_ptr<Life>> lives;  // by local rank
  FaultInjector faults;                                  // last: its hooks use the others
  Generation generation = kNoGeneration;
  std::size_t left = 0;  // lives that are not gone
  bool log_trouble_told = false;
};

// ------------------------------------------------------------------ start

absl::Status WorkerSet::State::prepare_files(Life& life, FaultWord& word) {
  auto paths = scratch.make_worker(life.generation, life.plan.local_rank);
  if (!paths.ok()) return paths.status();
  life.paths = *std::move(paths);
  word = choose_fault_word(life.plan.faults);
  auto file = ProgressFile::create(life.paths.progress_file, word.word, word.argument);
  if (!file.ok()) return file.status();
  progress.add(life.plan.local_rank, life.plan.rank, *std::move(file));
  return absl::OkStatus();
}

void WorkerSet::State::prepare_logs(Life& life, const WorkerStreams& streams,
                                    WorkerOutput& output) {
  output.local_rank = life.plan.local_rank;
  output.rank = life.plan.rank;
  output.generation = life.generation;
  output.stdout_on_console = streams.stdout_console;
  output.stderr_on_console = streams.stderr_console;
  if (parts.directory.off()) return;
  prepare_picked(output);
  const bool wanted = streams.stdout_file || streams.stderr_file || parts.options.log_dir_given;
  if (!wanted) return;
  const auto folder = parts.directory.make_rank(life.generation, life.plan.rank);
  if (!folder.ok()) {
    output.stdout_unlogged = streams.stdout_file;
    output.stderr_unlogged = streams.stderr_file;
    return warn(folder.status());
  }
  life.has_rank_folder = true;
  life.paths.error_file = *folder + "/error.json";
  if (streams.stdout_file) output.stdout_log = *folder + "/stdout.log";
  if (streams.stderr_file) output.stderr_log = *folder + "/stderr.log";
}

// The node's files of picked lines.
void WorkerSet::State::prepare_picked(WorkerOutput& output) {
  const ConsoleConfig& console = parts.options.console;
  if (console.stdout_filters.empty() && console.stderr_filters.empty()) return;
  const auto folder = parts.directory.make_generation(output.generation);
  if (!folder.ok()) return warn(folder.status());
  if (!console.stdout_filters.empty()) output.stdout_picked = *folder + "/filtered_stdout.log";
  if (!console.stderr_filters.empty()) output.stderr_picked = *folder + "/filtered_stderr.log";
}

WorkerCallbacks WorkerSet::State::callbacks_of(const std::shared_ptr<Life>& life) {
  // Weak: the process that holds these callbacks belongs to the life.
  WorkerCallbacks callbacks;
  callbacks.spawned = [this, weak = std::weak_ptr(life)](pid_t pid) {
    if (const auto one = weak.lock()) on_spawned(*one, pid);
  };
  callbacks.ended = [this, weak = std::weak_ptr(life)](const WorkerExit& exit) {
    if (const auto one = weak.lock()) on_ended(one, exit);
  };
  callbacks.gone = [this, weak = std::weak_ptr(life)] {
    if (const auto one = weak.lock()) on_gone(one);
  };
  callbacks.unkillable = [this, weak = std::weak_ptr(life)](pid_t pid, std::string state) {
    const auto one = weak.lock();
    if (one) parts.happened(WorkerUnkillable{one->plan.local_rank, pid, std::move(state)});
  };
  callbacks.failing = [this, path = life->paths.error_file, local_rank = life->plan.local_rank] {
    const std::optional<Duration> by_file = failing_for(path);
    return by_file ? by_file : parts.console.failing_for(local_rank);
  };
  callbacks.last_words = [this, local_rank = life->plan.local_rank] {
    return parts.console.last_words(local_rank);
  };
  callbacks.stderr_tail = [this, local_rank = life->plan.local_rank] {
    return parts.console.tail(local_rank);
  };
  return callbacks;
}

void WorkerSet::State::launch(const std::shared_ptr<Life>& life, const WorkerOutput& output) {
  const WorkerEnds ends = parts.console.open_worker(output);
  if (ends.error != 0) {
    return could_not_start(life,
                           std::string("no pipe for its output: ") + std::strerror(ends.error) +
                               " (" + limit_words(ends.error) + ")",
                           ends.error);
  }
  const StdinEnd in = input.open_worker(life->plan.local_rank);
  WorkerRequest request;
  request.spawn.argv = life->plan.argv;
  request.spawn.program =
      parts.options.program.empty() ? life->plan.argv.at(0) : parts.options.program;
  request.spawn.environment = life->plan.environment;
  auto& environment = request.spawn.environment;
  environment["TORCHELASTIC_ERROR_FILE"] = life->paths.error_file;
  environment["MUSTER_PROGRESS_FILE"] = life->paths.progress_file;
  environment["MUSTER_STOP_FILE"] = life->paths.stop_file;
  environment["MUSTER_ASSIGNMENT_FILE"] = life->paths.assignment_file;
  environment["MUSTER_RUN_DIR"] = life->paths.folder;
  request.marker = "MUSTER_RUN_DIR=" + life->paths.folder;
  request.cgroup =
      WorkerCgroup::make(parts.options.job_cgroup,
                         std::filesystem::path(life->paths.folder).filename());  // unique as well
  request.spawn.stdio = {in.fd, ends.out_fd, ends.err_fd};
  request.spawn.start = parts.options.start;
  const auto& processors = parts.options.processors;
  if (life->plan.local_rank < processors.size()) {
    request.spawn.processors = processors[life->plan.local_rank];
  }
  life->process = supervisor.start(request, callbacks_of(life));
}

void WorkerSet::State::start_one(const std::shared_ptr<Life>& life, const WorkerStreams& streams) {
  FaultWord word;
  const absl::Status status = prepare_files(*life, word);
  if (!status.ok()) return could_not_start(life, std::string(status.message()), ENOSPC);
  WorkerOutput output;
  prepare_logs(*life, streams, output);
  launch(life, output);
  if (!life->plan.faults.empty()) {
    faults.arm_worker(life->plan.local_rank, life->plan.faults, word.fault_index);
  }
}

// Events of a worker that never became a process, after the call that wanted it. `error`: an errno
// value that blames the node; the program has not been looked at.
void WorkerSet::State::could_not_start(const std::shared_ptr<Life>& life, const std::string& reason,
                                       int error) {
  boost::asio::post(parts.io, [self = weak_from_this(), life, reason, error] {
    const auto state = self.lock();
    if (!state) return;
    WorkerExit exit;
    exit.status.kind = ExitStatus::Kind::kExecFailed;
    exit.status.value = error;
    exit.status.detail = reason;
    state->on_ended(life, exit);
    state->on_gone(life);
  });
}

// ------------------------------------------------------------------ what happens to workers

void WorkerSet::State::on_spawned(Life& life, pid_t pid) {
  parts.happened(WorkerSpawned{life.plan.local_rank, pid});
  if (life.has_rank_folder) write_meta(life, pid);
}

void WorkerSet::State::write_meta(const Life& life, pid_t pid) {
  warn(parts.directory.write_meta(life.generation,
                                  {parts.node, life.plan.rank, life.plan.local_rank, pid}));
}

void WorkerSet::State::on_ended(const std::shared_ptr<Life>& life, const WorkerExit& exit) {
  const std::uint32_t local_rank = life->plan.local_rank;
  faults.worker_ended(local_rank);
  input.close_worker(local_rank);
  WorkerEnded event;
  event.local_rank = local_rank;
  event.pid = exit.pid;
  event.status = exit.status;
  const bool killed = exit.status.kind == ExitStatus::Kind::kSignaled &&
                      exit.status.value == SIGKILL && !life->kill_sent;
  event.oom = killed && killed_for_memory(exit.pid);
  event.order = exit.order;
  event.unasked = exit.unasked;
  event.failing = exit.failing;
  event.spoke = exit.spoke;
  event.run = exit.run;
  event.max_rss_bytes = exit.max_rss_bytes;
  std::string complaint;
  std::string last_words;  // more than goes into the report
  if (!exit.status.succeeded() && exit.status.kind != ExitStatus::Kind::kExecFailed) {
    event.stderr_tail = parts.console.tail(local_rank);
    last_words = parts.console.kept_stderr(local_rank);
    ErrorReport error = read_error_file(life->paths.error_file);
    event.error_file = std::move(error.text);
    event.secondary = error.secondary;
    complaint = std::move(error.complaint);
  }
  const bool own_failure = !exit.status.succeeded() && !life->stop_sent;
  if (own_failure && event.status.detail.empty()) {
    event.status.detail = what_the_kernel_says(exit, event.oom);
  }
  const bool keep = own_failure || !event.error_file.empty();
  parts.happened(std::move(event));
  if (!complaint.empty()) parts.log.say(Severity::kWarning, complaint);
  if (!keep || parts.directory.off()) return;
  // After the report, which others wait for, has left.
  boost::asio::post(parts.io, [self = weak_from_this(), life, pid = exit.pid,
                               last_words = std::move(last_words)] {
    if (const auto state = self.lock()) state->keep_failure(*life, pid, last_words);
  });
}

// The count is of our own control group: one that a worker made for itself below it has a count of
// its own (version 1), but the kernel's log, where we may read it, names the process.
bool WorkerSet::State::killed_for_memory(pid_t pid) {
  const bool counted = oom_ledger.claim(oom_counter.read());
  return counted || (hosts_pids && kernel_log.killed_for_memory(pid));
}

// Of devices, and of memory where the worker itself was not the victim.
std::string WorkerSet::State::what_the_kernel_says(const WorkerExit& exit, bool oom) {
  std::string text = describe(kernel_log.read(), exit.pid, IoLoop::now());
  const std::string memory = oom ? "" : oom_ledger.told_to_failed(oom_counter.read());
  if (!text.empty() && !memory.empty()) text += "; ";
  return text + memory;
}

// What stays of a failed worker: its last words, error.json and who it was.
void WorkerSet::State::keep_failure(const Life& life, pid_t pid, const std::string& tail) {
  const auto folder = parts.directory.make_rank(life.generation, life.plan.rank);
  if (!folder.ok()) return warn(folder.status());
  if (!life.has_rank_folder) {
    write_meta(life, pid);
    std::error_code ignored;  // there may be none
    std::filesystem::copy_file(life.paths.error_file, *folder + "/error.json", ignored);
  }
  const std::string stderr_log = *folder + "/stderr.log";
  if (!tail.empty() && ::access(stderr_log.c_str(), F_OK) != 0) {
    warn(write_whole(stderr_log, tail + (tail.ends_with('\n') ? "" : "\n")));
  }
}

void WorkerSet::State::signal(const std::shared_ptr<Life>& life, const SignalWorker& order) {
  if (life->gone || !life->process) return;
  const bool spares = order.stops && order.signal != SIGKILL && order.spares_failing > 0s;
  if (spares && life->process->failing()) return signal_later(life, order);
  life->spared.reset();
  if (order.stops) {
    life->stop_sent = true;
    life->process->expect_end();
  }
  if (order.signal == SIGKILL) life->kill_sent = true;
  life->process->signal(order.signal, order.scope, order.patience);
}

void WorkerSet::State::signal_later(const std::shared_ptr<Life>& life, SignalWorker order) {
  life->spared = std::make_unique<boost::asio::steady_timer>(parts.io);
  life->spared->expires_after(order.spares_failing);
  order.spares_failing = 0s;
  life->spared->async_wait(
      [this, weak = std::weak_ptr(life), order](const boost::system::error_code& error) {
        const auto one = weak.lock();
        if (!error && one) signal(one, order);
      });
}

void WorkerSet::State::on_gone(const std::shared_ptr<Life>& life) {
  MUSTER_CHECK(!life->gone);
  life->gone = true;
  progress.remove(life->plan.local_rank);
  if (--left == 0) {
    faults.disarm();
    if (parts.options.store.generation_ended) parts.options.store.generation_ended();
  }
  parts.happened(WorkerGone{life->plan.local_rank});
  // Behind keep_failure in the queue; the process object goes when nobody calls from it.
  boost::asio::post(parts.io, [self = weak_from_this(), life] {
    const auto state = self.lock();
    if (!state) return;
    state->scratch.remove_worker(life->paths);
    life->process.reset();
  });
}

// ------------------------------------------------------------------ the class

WorkerSet::WorkerSet(WorkerSetParts parts) : state_(std::make_shared<State>(std::move(parts))) {}

WorkerSet::~WorkerSet() {
  state_->faults.disarm();
  state_->lives.clear();
}

void WorkerSet::start(const StartWorkers& order) {
  MUSTER_CHECK(state_->left == 0);
  State& state = *state_;
  state.generation = order.generation;
  state.lives.clear();
  state.left = order.workers.size();
  state.oom_ledger.begin(state.oom_counter.read());
  state.supervisor.set_peers_elsewhere(order.peers_elsewhere);
  state.kernel_log.begin(state.parts.options.devices.root + "/kmsg");
  if (state.parts.options.store.generation_started) {
    state.parts.options.store.generation_started(order.generation);
  }
  state.faults.arm(order.generation, order.agent_faults);
  for (const WorkerPlan& plan : order.workers) {
    auto life = std::make_shared<Life>();
    life->plan = plan;
    life->generation = order.generation;
    state.lives[plan.local_rank] = life;
    const auto& streams = state.parts.options.streams;
    state.start_one(life, streams ? streams(plan.local_rank) : WorkerStreams{});
  }
}

void WorkerSet::signal(const SignalWorker& order) {
  const auto found = state_->lives.find(order.local_rank);
  if (found != state_->lives.end()) state_->signal(found->second, order);
}

void WorkerSet::write_stop_file(std::uint32_t local_rank) {
  const auto found = state_->lives.find(local_rank);
  if (found == state_->lives.end() || found->second->gone) return;
  if (found->second->process) found->second->process->expect_end();
  const std::string& path = found->second->paths.stop_file;
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) {
    state_->parts.log.say(Severity::kWarning,
                          "cannot create " + path + ": " + std::strerror(errno));
  }
}

std::vector<Lingering> WorkerSet::below(std::uint32_t local_rank) const {
  std::vector<Lingering> processes;
  const auto found = state_->lives.find(local_rank);
  if (found == state_->lives.end() || !found->second->process) return processes;
  for (const pid_t pid : found->second->process->descendants())
    processes.push_back({pid, command_of(pid)});
  return processes;
}

void WorkerSet::start_fault_clock(Generation generation, Duration elapsed) {
  state_->faults.start_clock(generation, elapsed);
}

std::vector<RankProgress> WorkerSet::sample(Instant now) {
  return state_->progress.sample(now);
}

std::optional<pid_t> WorkerSet::leader(std::uint32_t local_rank) const {
  const auto found = state_->lives.find(local_rank);
  if (found == state_->lives.end() || !found->second->process) return std::nullopt;
  if (!found->second->process->alive()) return std::nullopt;
  return found->second->process->pid();
}

std::optional<std::string> WorkerSet::rank_folder(std::uint32_t local_rank) {
  const auto found = state_->lives.find(local_rank);
  RunDirectory& directory = state_->parts.directory;
  if (found == state_->lives.end() || directory.off()) return std::nullopt;
  const Life& life = *found->second;
  const auto folder = directory.make_rank(life.generation, life.plan.rank);
  if (!folder.ok()) {
    state_->warn(folder.status());
    return std::nullopt;
  }
  if (!life.has_rank_folder && life.process) state_->write_meta(life, life.process->pid());
  return *folder;
}

void WorkerSet::finish(Duration limit, std::function<void()> done) {
  state_->faults.disarm();
  auto waiting = std::make_shared<std::size_t>(state_->lives.size() + 1);
  const auto one_less = [waiting, done = std::move(done)] {
    if (--*waiting == 0) done();
  };
  for (const auto& [local_rank, life] : state_->lives) {
    state_->parts.console.finish_worker(local_rank, limit, one_less);
  }
  boost::asio::post(state_->parts.io, one_less);
}

}  // namespace muster::agent
