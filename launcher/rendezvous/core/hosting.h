// SPDX-License-Identifier: Apache-2.0
//
// Who hosts the server? Every node of a job runs the same line and asks this one function, again
// and again, with what it has found out so far; the shell (commands/endpoint_probe) does what it
// says and finds out more. Pure: no name, socket or clock.
//
// The rules, in the order of their weight:
//   1. whoever answers Muster's protocol at the endpoint is the server: join it;
//   2. the node that owns the endpoint's address hosts; where --rdzv-conf is_host= is given, it
//      says yes or no instead;
//   3. where nobody has been found, the node given rank 0 explicitly offers itself too: behind a
//      virtual address or a translated one, no node finds the address among its own;
//   4. whoever listens dials itself through the endpoint as written. Only if its own server
//      answers there does it host; if another one does, it closes its own and joins. So two nodes
//      can both offer themselves, and one of them gives way;
//   5. at the deadline nobody is left waiting: refused, with what was seen last.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::rendezvous {

// What a look at the endpoint has shown. `kUnknownName`: the name has no address (yet).
enum class Seen : std::uint8_t { kNotLooked, kMuster, kNothing, kStranger, kSilent, kUnknownName };

// How the attempt to listen ended.
enum class Listening : std::uint8_t { kNotTried, kYes, kAddressInUse, kNotPermitted, kFailed };

struct HostingFacts {
  // The endpoint, looked at while this node does not listen. Set back to kNotLooked when a try to
  // listen fails.
  Seen seen = Seen::kNotLooked;
  bool owns_address = false;        // one of the endpoint's addresses is this host's
  bool explicit_rank_zero = false;  // --node-rank 0, by flag, variable or detection
  std::optional<bool> is_host{};    // --rdzv-conf is_host=
  Listening listening = Listening::kNotTried;
  // The endpoint, looked at while this node listens, and whether it was our own instance.
  Seen seen_back = Seen::kNotLooked;
  bool own_instance = false;
  bool deadline_passed = false;
};

struct HostingDecision {
  enum class Do : std::uint8_t {
    kLook,      // look at the endpoint (first, or again after a pause)
    kListen,    // listen there, then ask again
    kDialBack,  // look at the endpoint while listening
    kJoin,      // final: another process is the server; close our own if listening
    kHost,      // final: our own server is reached through the endpoint
    kRefuse     // final: exit with `exit_code`
  };
  // Why, as data; in_words() makes a line of it.
  enum class Why : std::uint8_t {
    kNotLookedYet,
    kServerAnswers,
    kAddressIsOurs,
    kToldToHost,
    kRankZeroOffers,
    kWaitForOwner,
    kToldNotToHost,
    kHeldByStranger,
    kCheckReach,
    kReachesUs,
    kReachesAnother,
    kDoesNotReachUs,
    kInUse,
    kMayNotListen,
    kCannotListen
  };
  Do what = Do::kLook;
  Why why = Why::kNotLookedYet;
  bool again = false;  // a repeated try: pause first
  int exit_code = 0;   // kRefuse
  bool operator==(const HostingDecision&) const = default;
};

HostingDecision decide_hosting(const HostingFacts& facts);

// "nobody answers there yet, and the address is not this host's".
std::string in_words(HostingDecision::Why why);
std::string in_words(Seen seen);

}  // namespace muster::rendezvous
