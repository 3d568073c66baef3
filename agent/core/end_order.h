// SPDX-License-Identifier: Apache-2.0
//
// Workers that end together: who of them is waited for, and in what order they are told.
//
// A worker that dies closes its sockets before the kernel says that it has ended, and a peer that
// waits on one may fail over that, and have ended, first. So at the first end that nobody asked
// for, whoever is on the way out already is waited for, and of all those the one with the best
// evidence is told first: the kernel's signal for a crash, then an exit, then what is most often
// the reaction to another's end (an abort, SIGPIPE, last of all whoever says so). Among equals it
// is the one whose failure began first: when it wrote its error file, for it may take its time to
// end after that, or else when its end was seen; and where all of them had last words on stderr,
// who had them first.
//
// An interpreter closes its sockets long before it ends. So a reaction waits for everybody, whoever
// it was a reaction to, and an exit for those that had last words before it had. A crash has no
// such time: one that was not on the way out at the first end, and had no words before it, came
// after it, and counts as a reaction. Where the peers are on other nodes too, whoever they react to
// may be there: a reaction waits for as long, until somebody asks the workers here to end, since
// the first report of a generation is what stops all of it.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "proto/base/failure.h"
#include "proto/base/time.h"

namespace muster::agent {

// A worker whose end was seen.
struct SeenEnd {
  std::int64_t pid = 0;
  std::optional<Evidence> evidence;  // nullopt: a success, which is nobody's cause
  Instant began;                     // when its failure did; `seen` if nothing else is known
  Instant seen;
  std::optional<Instant> spoke;  // its last words, or when it said that it fails; if lately
};

// One whose end was not seen yet, and which nobody asked to end.
struct StillAlive {
  std::int64_t pid = 0;
  bool ending = false;             // on the way out, as the kernel says
  std::optional<Instant> failing;  // … as it says itself, since then
  std::optional<Instant> spoke;
};

class EndOrder {
 public:
  // How long an end waits at most for others that are on the way out: they have freed their memory
  // and close their files. Those that have only said that they fail may have an interpreter and
  // devices to close.
  static constexpr Duration kPatience = 200ms;
  static constexpr Duration kPatienceWithFailing = 1s;
  static constexpr Duration kPatienceWithReaction = 150ms;
  static constexpr Duration kPatienceWithSpeakers = 100ms;

  // Whether workers of the same job run on other nodes.
  void set_peers_elsewhere(bool peers) { peers_elsewhere_ = peers; }
  // Ends wait to be told.
  bool open() const { return open_; }
  // Whether it matters who else lives when this end is seen.
  bool asks_for_others(Evidence evidence) const;
  // The end of `end` was seen, which nobody asked for and which is no success; add() follows.
  // REQUIRES: asks_for_others(). How long to wait from now if this opened a wait; 0: it did not.
  Duration gather(const SeenEnd& end, const std::vector<StillAlive>& others);
  // REQUIRES: open. True: nobody is waited for any more.
  bool add(const SeenEnd& end);
  // Peers elsewhere have been heard of. True: nobody is waited for any more.
  bool heard_from_elsewhere();
  // All that were added, in the order in which they are told. Nothing is open afterwards.
  std::vector<std::int64_t> close();

 private:
  bool all_reactions() const;
  // Less is told first.
  int place(const SeenEnd& end) const;

  bool peers_elsewhere_ = false;
  bool open_ = false;
  bool waits_elsewhere_ = false;
  std::set<std::int64_t> waits_for_;
  std::set<std::int64_t> were_ending_;  // when the first end was seen
  std::vector<SeenEnd> ends_;
};

}  // namespace muster::agent
