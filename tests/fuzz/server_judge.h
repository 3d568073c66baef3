// SPDX-License-Identifier: Apache-2.0
//
// What the rendezvous machine must never do, whoever talks to it; looked at after every step.
// Ends the process at the first broken promise. It believes nothing that an agent says, so it
// holds for hostile ones too; what takes honest agents is for the simulator (tests/sim).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "launcher/rendezvous/core/rendezvous.h"
#include "tests/fuzz/input.h"

namespace muster::fuzz {

// That the record border gives back what it is given; ends the process where it refuses.
void expect_readable(const rendezvous::RunRecord& run);

class ServerJudge {
 public:
  explicit ServerJudge(const rendezvous::Limits& limits) : limits_(limits) {}

  // Another server goes on: from the journal, or with nothing.
  void server_started(bool from_journal);
  void stepped(const rendezvous::Event& event, const std::vector<rendezvous::Action>& actions,
               const rendezvous::Rendezvous& machine, Instant now);

  // What the machine's orders left on disk.
  const std::vector<rendezvous::RunRecord>& journal() const { return journal_; }

 private:
  void on(const rendezvous::Send& send);
  void on(const rendezvous::CloseSession&) {}
  void on(const rendezvous::Persist& persist);
  void on(const rendezvous::Forget& forget);
  void on(const rendezvous::Emit& emit);
  void on(const rendezvous::OpenStore& open);
  void on(const rendezvous::CloseStore& close);
  void on(const rendezvous::ReplyOperator&) {}
  void on(const rendezvous::JobOver& over);
  void prepared(const Envelope& envelope, const Prepare& prepare);
  void outcome(const RunId& run, const Outcome& outcome);
  void check_answers(const rendezvous::Event& event,
                     const std::vector<rendezvous::Action>& actions) const;
  void check_journal(const rendezvous::Rendezvous& machine) const;
  void check_bounds(const rendezvous::Rendezvous& machine, Instant now) const;

  const rendezvous::Limits limits_;
  bool leaves_ = false;  // the server said goodbye, and answers no more
  Instant now_;
  std::uint64_t steps_ = 0;
  std::set<RunId> written_;  // in this step
  std::vector<rendezvous::RunRecord> journal_;
  std::map<RunId, rendezvous::JobRecord> last_;
  std::map<RunId, Outcome> outcomes_;
  std::set<RunId> over_;
  std::map<std::tuple<RunId, Generation, Attempt>, std::vector<MemberRanks>> rounds_;
  std::set<std::pair<JobId, Generation>> stores_;
};

}  // namespace muster::fuzz
