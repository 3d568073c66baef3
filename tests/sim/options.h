// SPDX-License-Identifier: Apache-2.0
//
// What a seed decides: the job's shape and which faults strike how often. Each kind of fault is
// on in some seeds and off in others, so that rare combinations get seeds of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/base/job.h"
#include "proto/base/time.h"

namespace muster::sim {

enum class NodeRanks : std::uint8_t { kNone, kSome, kAll };

struct SimOptions {
  std::uint64_t seed = 0;
  std::uint64_t draw = 0;  // the same world under other chances; 0: the seed's own
  std::uint32_t min_nodes = 1;
  std::uint32_t max_nodes = 1;
  std::uint32_t agents = 1;  // may be fewer than MIN, or more than MAX (spares)
  std::uint32_t slots = 1;
  bool indexed = false;      // a scheduler numbers the nodes, against their natural order
  bool mixed_slots = false;  // `slots` is the most; nodes differ
  NodeRanks node_ranks = NodeRanks::kNone;
  JobPolicy policy;
  bool hosted = false;     // node 0's process runs the server too, and dies with it
  bool journaled = false;  // a server that starts again reads what the one before wrote

  // Mean number of strikes a second during the fault phase: on each node, but for the last three.
  double breaks = 0;         // a stream breaks, both ends notice
  double half_open = 0;      // … one of them, or both, much later
  double stalls = 0;         // a stream stands still for a while
  double freezes = 0;        // an agent is stopped and continued
  double agent_kills = 0;    // kill -9
  double agent_signals = 0;  // TERM or INT
  double suspends = 0;       // TSTP, and CONT some time later
  double server_stalls = 0;  // the server's process stands still for a while
  double server_kills = 0;   // kill -9, often in the middle of a step
  double one_way = 0;        // nothing gets from a node to the server for a while, or back
  double partitions = 0;     // some nodes and the server do not reach each other for a while
  double agent_leaps = 0;    // the clock of a node leaps ahead, as after a pause of its VM
  double server_leaps = 0;   // … that of the server's host
  double operator_stops = 0;
  double operator_scales = 0;
  double operator_drains = 0;
  double operator_restarts = 0;

  double restarts = 0;        // chance that an agent that ended is started again
  double late_start = 0;      // chance that an agent starts late
  double worker_failure = 0;  // chance that a worker ends badly by itself
  double exec_failure = 0;
  double ignores_term = 0;
  double hangs = 0;        // chance that a worker stands still until it is stopped
  double hang_watch = 0;   // above 0: agents look for hangs
  double peers = 0;        // chance that a worker fails over one of its generation that ended
  double leaves_rest = 0;  // chance that descendants outlive the worker
  double unkillable = 0;
  double reports = 0;        // chance that a worker reports progress and heeds its stop file
  double slow_messages = 0;  // chance of a delay in the order of a second
  double wall_steps = 0;     // chance that a server starts with another time of day
  double lost_tails = 0;     // chance that a crash takes what was written last (power loss)
  double attempts = 0;       // a scheduler names its attempts; chance that a start is another one
  Duration longest_work = 12s;
  Duration fault_phase = 30s;
  std::string planted;  // the bug that the simulator must find (planted.h); none

  static SimOptions from_seed(std::uint64_t seed);
  std::string text() const;

  // Of node `index`, counted from 0.
  std::uint32_t slots_of(std::size_t index) const;
  std::optional<std::uint32_t> node_rank_of(std::size_t index) const;
  std::optional<std::uint32_t> scheduler_index_of(std::size_t index) const;
};

NodeName node_name(std::size_t index);
std::string node_address(std::size_t index);

// The kinds of faults, so that each can be named and switched off.
struct Knob {
  const char* name;
  double SimOptions::*value;
};
const std::vector<Knob>& knobs();

}  // namespace muster::sim
