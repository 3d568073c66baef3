// SPDX-License-Identifier: Apache-2.0
//
// Whether what the server says of each generation fits what happened: one first cause at most, a
// charge for a worker's failure and for nothing announced, and no generation without its reason.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/rendezvous/core/rendezvous.h"
#include "tests/sim/crashes.h"
#include "tests/sim/options.h"

namespace muster::sim {

class Reasons {
 public:
  explicit Reasons(const SimOptions& options) : options_(&options) {}

  // `remembers`: it read the journal of the one before.
  void server_started(bool remembers);
  // A step of the server that was written down; nullopt: all of it fits.
  std::optional<std::string> stepped(const rendezvous::Event& event,
                                     const std::vector<rendezvous::Action>& actions, Instant now);

 private:
  // Lost nodes that ended a generation: all of them, and those after which no progress can have
  // been: no agent reported any.
  struct Losses {
    std::uint32_t ever = 0;
    std::uint32_t in_row = 0;
  };
  struct Story {  // of a run, since its last generation was formed
    Generation generation = kNoGeneration;
    std::size_t nodes = 0;
    std::uint32_t max_nodes = 0;  // as written last
    std::uint32_t most = 0;       // of these since then
    std::optional<FailureKind> failed;
    bool scheduled = false;
    bool left = false;  // a node left, or a worker of one that has the signal ended
    bool state_lost = false;
    bool asked = false;             // an operator scaled or restarted the job
    std::uint32_t used = 0;         // restarts, as written down
    std::uint32_t used_before = 0;  // … by earlier steps
    std::uint32_t min_nodes = 0;    // as written last
    Losses losses;
    Crashes crashes;
  };

  void reported(const Heartbeat& heartbeat);
  void lost(Story& story, bool charged);
  void ordered(const rendezvous::Order& order, const std::vector<rendezvous::Action>& actions);
  void written(const rendezvous::JobRecord& record);
  void note_stop(Story& story, const rendezvous::JobRecord& record, Instant now);
  void told(Story& story, const JobEvent& event, bool joins, Instant now);
  void scheduled(Story& story, const event::RestartScheduled& restart, bool joins);
  void formed(Story& story, Generation generation, const event::GenerationFormed& formed,
              Instant now);
  bool fits(const Story& story, Generation generation, FormReason reason) const;
  void fail(std::string what) {
    if (!failure_) failure_ = std::move(what);
  }

  const SimOptions* options_;
  std::map<RunId, Story> stories_;
  std::optional<std::string> failure_;
};

}  // namespace muster::sim
