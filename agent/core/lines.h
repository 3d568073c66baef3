// SPDX-License-Identifier: Apache-2.0
//
// The machine's decisions in words: every line that the agent says is composed here, from data.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/base/events.h"
#include "proto/base/job.h"
#include "proto/base/messages.h"
#include "proto/base/time.h"

namespace muster::agent {

// "0.21": seconds, two decimals.
std::string seconds(Duration duration);
// "1m30s"-like lengths are hard to compare; waits are shown in whole seconds: "90s".
std::string whole_seconds(Duration duration);

// What became of the attempts to reach the server.
struct LinkHistory {
  std::string endpoint;       // as the user wrote it; may be empty
  std::uint32_t tries = 0;    // streams asked for since the last accepted Join
  bool up = false;            // a stream is open, the Join is not answered
  bool speaks_muster = true;  // false: what answered last is not Muster
  std::string reason;         // of the last failure
  bool sent_away = false;     // it was the server's word that it is too early
};

// Why no server accepted us, without its duration: "nothing answers at a:29400 (12 tries, …)".
std::string describe(const LinkHistory& history);
// "1 of 2 nodes joined (a), 1 missing; 590s left".
std::string describe(const Waiting& waiting);
// "rank 1 (node b, pid 42) was killed by SIGKILL".
std::string describe(const Failure& failure);

// A process that outlives the worker that started it.
struct Lingering {
  std::int64_t pid = 0;
  std::string command;  // may be empty
};
// "rank 0 ended, processes that it started run on: 4711 (sleep 600); they have 30s".
std::string lingering_line(std::uint32_t rank, const std::vector<Lingering>& processes,
                           Duration grace);

// The console line of a job event; nullopt for those that only go to files.
std::optional<std::string> console_line(const JobEvent& event);

}  // namespace muster::agent
