// SPDX-License-Identifier: Apache-2.0
//
// Standard input for workers: one of them (local rank 0 unless told otherwise), all, or none.
//
// One worker that gets a pipe, a file or a socket gets the agent's own descriptor. A terminal is
// different: the worker is in another session, where job control does not hold, and would steal
// what is typed at the shell while the job is in the background. So a terminal (and any input
// that all workers get) is read here, by a thread, only while we are in the foreground, and fed
// through pipes, each chunk when all have taken the last.
//
// Thread rule: io thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <boost/asio/io_context.hpp>

#include "agent/shell/unique_fd.h"

namespace muster::agent {

struct StdinConfig {
  bool all = false;
  std::optional<std::uint32_t> local_rank = 0;  // nullopt: none (unless all)
  bool raw = false;                             // ConsoleMode::kRaw: hand over the descriptor
  int fd = 0;                                   // borrowed for the life of the process
};

// The worker's end, for StdioPlan.in; close `owned` after the spawn.
struct StdinEnd {
  UniqueFd owned;
  int fd = -1;  // -1: /dev/null
};

class StdinFeed {
 public:
  StdinFeed(boost::asio::io_context& io, StdinConfig config);
  ~StdinFeed();
  StdinFeed(const StdinFeed&) = delete;
  StdinFeed& operator=(const StdinFeed&) = delete;

  // For one life of a worker; its earlier life gets no more.
  StdinEnd open_worker(std::uint32_t local_rank);
  // The worker ended: its pipe is closed.
  void close_worker(std::uint32_t local_rank);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
