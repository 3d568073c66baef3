// SPDX-License-Identifier: Apache-2.0
//
// Carries out the armed faults of one generation on this node, on a worker or on the agent itself:
// at a step, or some time after all workers of the generation run.
//
// Who acts on a step fault: the earliest kill, stop or exit of each rank goes into its progress
// file's fault word before exec. A worker that uses report() takes the word and acts at exactly
// that step; then it is only told. A worker whose step is reached with the word still there does
// not act on it (the layout says so), and is hit from here, as are all other step faults: at the
// first observed step at or beyond theirs, looked for every 2 ms. A fault fires once. An exit is
// always the worker's own act: from here it only gets the word, and fires when it is taken.
//
// Thread rule: io thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/shell/progress_file.h"
#include "proto/base/faults.h"
#include "proto/base/ids.h"

namespace muster::agent {

struct FaultHooks {
  // Sends `signal` to the worker; false: it has ended.
  std::function<bool(std::uint32_t local_rank, int signal)> signal;
  std::function<std::optional<ProgressFile::Reading>(std::uint32_t local_rank)> progress;
  // Called before a kill-agent takes place, after any other.
  std::function<void(std::uint32_t fault_index, std::optional<std::uint32_t> rank)> fired;
  std::function<void()> kill_agent;
  std::function<void()> preempt;  // SIGTERM to this agent
  // Holds up what this node and its server say to each other.
  std::function<void(const Fault&)> disturb_link;
  // Writes a fault word into a worker's progress file, over one that was not taken.
  std::function<void(std::uint32_t local_rank, std::uint64_t word, std::uint64_t argument)> ask;
};

struct FaultWord {
  std::uint64_t word = 0;  // 0: none
  std::uint64_t argument = 0;
  std::optional<std::uint32_t> fault_index;
};

// The fault of one worker that its progress file carries: its earliest step fault.
FaultWord choose_fault_word(const std::vector<ArmedFault>& faults);

class FaultInjector {
 public:
  FaultInjector(boost::asio::io_context& io, FaultHooks hooks);
  ~FaultInjector();  // nothing fires any more
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;

  // A new generation: what was armed before and has not fired is forgotten.
  void arm(Generation generation, std::vector<ArmedFault> agent_faults);
  // Faults of one of its workers, whose process exists. `in_word`: choose_fault_word's index.
  void arm_worker(std::uint32_t local_rank, std::vector<ArmedFault> faults,
                  std::optional<std::uint32_t> in_word);
  // All workers of `generation` run, since `elapsed`: `after` counts from there.
  void start_clock(Generation generation, Duration elapsed = Duration{0});
  // Last look at what a worker did to itself; call before reporting its end. Its other faults
  // are forgotten.
  void worker_ended(std::uint32_t local_rank);
  void disarm();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
