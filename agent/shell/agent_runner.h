// SPDX-License-Identifier: Apache-2.0
//
// One node's agent, run: turns the world (link, worker processes, signals, time) into
// agent::Events, steps the machine of agent/core, and carries its actions out in order.
//
// What it leaves behind when `done` is called: no worker, no descriptor of its own but those that
// the objects below hold until it is destroyed, no file outside the log folder.
//
// Thread rule: io thread only, the one that never ends.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/agent.h"
#include "agent/shell/console.h"
#include "agent/shell/device_watch.h"
#include "agent/shell/guardian.h"
#include "agent/shell/log_lines.h"
#include "agent/shell/log_rules.h"
#include "agent/shell/server_link.h"
#include "agent/shell/signals.h"
#include "agent/shell/stdin_feed.h"
#include "proto/base/faults.h"
#include "proto/base/ids.h"
#include "proto/base/job.h"
#include "proto/base/store.h"

namespace muster::agent {

// Where one worker's output goes besides the console (--redirects, --tee).
struct WorkerStreams {
  bool stdout_file = false;
  bool stderr_file = false;
  bool stdout_console = true;
  bool stderr_console = true;
};

// What a StoreProxy needs to know of the agent's life; empty functions are not called.
struct StoreHooks {
  std::function<void(ServerLink*)> link_up;  // JoinAccepted was seen
  std::function<void()> link_down;
  std::function<void(const StoreReply&)> store_said;
  std::function<void(Generation)> generation_started;  // just before its workers start
  std::function<void()> generation_ended;              // its last worker is gone
};

struct RunnerOptions {
  StartingState start;            // what workers get back; see capture_starting_state()
  std::vector<int> signals;       // blocked (take_signals); each becomes a SignalReceived
  std::optional<pid_t> guardian;  // watched, where there is one
  GuardPage* guard_page = nullptr;
  std::string program;                       // path for execve; empty: argv[0] as it stands
  std::string search_path;                   // PATH, for the programs that show stacks
  std::vector<std::vector<int>> processors;  // by local rank; empty: those that we have

  ConsoleConfig console;
  StdinConfig standard_input;
  LogLevel log_level = LogLevel::kWarning;

  std::string log_dir;         // base folder; "/dev/null": no log files at all
  bool log_dir_given = false;  // by the user: the run's folder is made at the start,
                               // otherwise with the first thing that goes there
  LogKeep log_keep;            // of this job's runs; none: all stay
  std::function<WorkerStreams(std::uint32_t local_rank)> streams;  // empty: console only

  std::string events;           // "": off, "-": stdout, else a file (see EventWriter)
  std::function<void(const JobEvent&)> on_event;  // the same events; empty: nobody asks
  // Carries out a fault on the link to the server; empty where no plan has one.
  std::function<void(const Fault&)> disturb_link;
  std::string scratch_path;     // see choose_scratch_path(); made and removed by the runner
  std::string job_cgroup;       // see job_cgroup_path(); "": workers stay in the agent's group
  std::string own_error_file;   // the agent's own TORCHELASTIC_ERROR_FILE; "": none
  std::string termination_log;  // see termination_log.h; "": none

  // Where the counts of the out-of-memory killer are found; tests have their own.
  std::string proc_root = "/proc";
  std::string cgroup_root = "/sys/fs/cgroup";
  DevicePlaces devices;

  StoreHooks store;
  // The numeric address the link reached the server at; fills NodeFacts::dialed_addr of a Join.
  std::function<std::string()> dialed_addr;
};

// How it ended.
struct RunResult {
  int exit_code = 0;
  ExitClass exit_class = ExitClass::kSucceeded;
  std::optional<Outcome> outcome;
};

class AgentRunner {
 public:
  // `done` is called once, after the last output was written and the scratch files removed. The
  // runner may be destroyed in it.
  AgentRunner(boost::asio::io_context& io, RunnerOptions options, AgentConfig config,
              std::unique_ptr<ServerLink> link);
  // Kills workers that still live, with all their descent.
  ~AgentRunner();
  AgentRunner(const AgentRunner&) = delete;
  AgentRunner& operator=(const AgentRunner&) = delete;

  // REQUIRES: called once.
  void run(std::function<void(const RunResult&)> done);

  // As if the signal had arrived: stops (or forwards) by the agent's rules. After run().
  void signal(int number);

  // The terminal's size changed, and SIGWINCH is not to be forwarded: hands it to workers'
  // terminals.
  void resize_terminals();

  AgentView view() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
