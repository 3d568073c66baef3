// SPDX-License-Identifier: Apache-2.0
//
// The workers of this node: all that belongs to one life of each (process, output, input, private
// folder, progress file, faults), from StartWorkers until nothing of it is left. Speaks in
// agent::Events; decides nothing.
//
// Order of a start: folder and progress file with its fault word, pipes, then the process; a part
// that fails is reported as a worker that could not be started.
//
// Thread rule: io thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/agent.h"
#include "agent/core/lines.h"
#include "agent/shell/agent_runner.h"
#include "agent/shell/console.h"
#include "agent/shell/log_lines.h"
#include "agent/shell/run_directory.h"
#include "proto/base/messages.h"
#include "proto/base/time.h"

namespace muster::agent {

// Everything it works with; borrowed for its life.
struct WorkerSetParts {
  boost::asio::io_context& io;
  const RunnerOptions& options;
  NodeName node;
  Console& console;
  LogLines& log;
  RunDirectory& directory;
  std::function<void(Event)> happened;  // never called from inside a call of WorkerSet
};

class WorkerSet {
 public:
  explicit WorkerSet(WorkerSetParts parts);
  ~WorkerSet();  // kills what lives, removes the private folders
  WorkerSet(const WorkerSet&) = delete;
  WorkerSet& operator=(const WorkerSet&) = delete;

  // REQUIRES: no worker of an earlier generation is left.
  void start(const StartWorkers& order);
  void signal(const SignalWorker& order);
  void write_stop_file(std::uint32_t local_rank);
  // What runs below this worker, at this moment.
  std::vector<Lingering> below(std::uint32_t local_rank) const;
  void start_fault_clock(Generation generation, Duration elapsed);

  // Progress of the workers that report, by rank.
  std::vector<RankProgress> sample(Instant now);
  // The process of a worker that runs; nullopt: it does not.
  std::optional<pid_t> leader(std::uint32_t local_rank) const;
  // The folder of a worker's rank in the log directory, made if need be; nullopt: there is none,
  // which has been said where it was not wanted so.
  std::optional<std::string> rank_folder(std::uint32_t local_rank);

  // Calls `done` when all output of all workers was taken, or `limit` has passed. No fault fires
  // any more.
  void finish(Duration limit, std::function<void()> done);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
