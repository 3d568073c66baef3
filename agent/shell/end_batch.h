// SPDX-License-Identifier: Apache-2.0
//
// Workers that end together, in the order in which they are told.
//
// A worker that dies closes its sockets before the kernel says that it has ended, and a peer that
// waits on one may fail over that, and have ended, first. So at the first end that nobody asked
// for, whoever is on the way out already is waited for, and of all those the one with the best
// evidence is told first: the kernel's signal for a crash, then an exit, then what is most often
// the reaction to another's end (an abort, SIGPIPE). Among equals it is the one whose failure began
// first: when it wrote its error file, for it may take its time to end after that, or else when its
// end was seen; and where all of them had last words on stderr, who had them first.
//
// An interpreter closes its sockets long before it ends. So a reaction waits for everybody, whoever
// it was a reaction to, and an exit for those that had last words before it had.
//
// Thread rule: io thread only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <sys/types.h>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/agent.h"
#include "proto/base/time.h"

namespace muster::agent {

class EndBatch {
 public:
  // How long an end waits at most for others that are on the way out: they have freed their memory
  // and close their files. Those that have only said that they fail may have an interpreter and
  // devices to close.
  static constexpr Duration kPatience = 200ms;
  static constexpr Duration kPatienceWithFailing = 1s;
  static constexpr Duration kPatienceWithReaction = 150ms;
  static constexpr Duration kPatienceWithSpeakers = 100ms;

  explicit EndBatch(boost::asio::io_context& io);
  ~EndBatch();
  EndBatch(const EndBatch&) = delete;
  EndBatch& operator=(const EndBatch&) = delete;

  // No end waits: the next one may open a batch, or is told at once.
  bool open() const;
  // `waits_for`: pids of workers whose ends are to come. REQUIRES: not open, not empty.
  void begin(std::set<pid_t> waits_for, Duration patience = kPatience);
  // Whether all that was added is reactions to somebody's end.
  bool all_reactions() const;
  // Only these are waited for still. REQUIRES: open.
  void narrow(const std::set<pid_t>& waits_for);
  // `tell` is called once, later or in here, in its turn. `began`: when its failure did. `spoke`:
  // when it said its last words, or that it fails; nullopt: not lately.
  void add(pid_t pid, const ExitStatus& status, Instant began, std::optional<Instant> spoke,
           std::function<void()> tell);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
