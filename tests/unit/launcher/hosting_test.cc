// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/hosting.h"

#include <catch2/catch.hpp>

namespace muster::rendezvous {
namespace {

using Do = HostingDecision::Do;
using Why = HostingDecision::Why;

void expect(const HostingFacts& facts, Do what, Why why) {
  const HostingDecision decision = decide_hosting(facts);
  INFO(in_words(decision.why));
  CHECK(decision.what == what);
  CHECK(decision.why == why);
}

}  // namespace

TEST_CASE("look first, and at least once") {
  expect({}, Do::kLook, Why::kNotLookedYet);
  expect({.deadline_passed = true}, Do::kLook, Why::kNotLookedYet);
}

TEST_CASE("whoever answers is joined, whatever else holds") {
  for (const bool owns : {false, true}) {
    for (const bool zero : {false, true}) {
      for (const std::optional<bool> told :
           {std::optional<bool>{}, std::optional{false}, std::optional{true}}) {
        for (const bool late : {false, true}) {
          expect({.seen = Seen::kMuster,
                  .owns_address = owns,
                  .explicit_rank_zero = zero,
                  .is_host = told,
                  .deadline_passed = late},
                 Do::kJoin, Why::kServerAnswers);
        }
      }
    }
  }
}

TEST_CASE("the owner listens, others wait") {
  for (const Seen seen : {Seen::kNothing, Seen::kSilent}) {
    expect({.seen = seen, .owns_address = true}, Do::kListen, Why::kAddressIsOurs);
    expect({.seen = seen}, Do::kLook, Why::kWaitForOwner);
    expect({.seen = seen, .explicit_rank_zero = true}, Do::kListen, Why::kRankZeroOffers);
  }
  expect({.seen = Seen::kUnknownName}, Do::kLook, Why::kWaitForOwner);
  expect({.seen = Seen::kUnknownName, .explicit_rank_zero = true}, Do::kListen,
         Why::kRankZeroOffers);
  CHECK(decide_hosting({.seen = Seen::kNothing}).again);
}

TEST_CASE("is_host overrides ownership and rank") {
  expect(
      {.seen = Seen::kNothing, .owns_address = true, .explicit_rank_zero = true, .is_host = false},
      Do::kLook, Why::kToldNotToHost);
  expect({.seen = Seen::kNothing, .is_host = true}, Do::kListen, Why::kToldToHost);
}

TEST_CASE("a stranger at the endpoint is waited for, then named") {
  expect({.seen = Seen::kStranger, .owns_address = true}, Do::kLook, Why::kHeldByStranger);
  const HostingDecision end = decide_hosting({.seen = Seen::kStranger, .deadline_passed = true});
  CHECK(end == HostingDecision{Do::kRefuse, Why::kHeldByStranger, false, 75});
}

TEST_CASE("address in use means look again, then try again") {
  expect({.owns_address = true, .listening = Listening::kAddressInUse}, Do::kLook, Why::kInUse);
  expect({.seen = Seen::kMuster, .owns_address = true, .listening = Listening::kAddressInUse},
         Do::kJoin, Why::kServerAnswers);
  expect({.seen = Seen::kNothing, .owns_address = true, .listening = Listening::kAddressInUse},
         Do::kListen, Why::kAddressIsOurs);
  expect({.seen = Seen::kNothing,
          .owns_address = true,
          .listening = Listening::kAddressInUse,
          .deadline_passed = true},
         Do::kRefuse, Why::kInUse);
}

TEST_CASE("a listener hosts only if the endpoint leads to it") {
  const auto listening = [](Seen seen, bool own, bool late = false) {
    return HostingFacts{.seen = Seen::kNothing,
                        .owns_address = true,
                        .listening = Listening::kYes,
                        .seen_back = seen,
                        .own_instance = own,
                        .deadline_passed = late};
  };
  expect(listening(Seen::kNotLooked, false), Do::kDialBack, Why::kCheckReach);
  expect(listening(Seen::kMuster, true), Do::kHost, Why::kReachesUs);
  expect(listening(Seen::kMuster, true, true), Do::kHost, Why::kReachesUs);
  expect(listening(Seen::kMuster, false), Do::kJoin, Why::kReachesAnother);
  for (const Seen seen : {Seen::kNothing, Seen::kSilent, Seen::kUnknownName}) {
    expect(listening(seen, false), Do::kDialBack, Why::kDoesNotReachUs);
    CHECK(decide_hosting(listening(seen, false, true)) ==
          HostingDecision{Do::kRefuse, Why::kDoesNotReachUs, false, 75});
  }
  expect(listening(Seen::kStranger, false), Do::kDialBack, Why::kHeldByStranger);
}

TEST_CASE("a privileged port is a configuration error, at once") {
  const HostingDecision decision = decide_hosting(
      {.seen = Seen::kNothing, .owns_address = true, .listening = Listening::kNotPermitted});
  CHECK(decision == HostingDecision{Do::kRefuse, Why::kMayNotListen, false, 2});
}

TEST_CASE("every combination ends at the deadline, or has one step to do before") {
  for (int seen = 0; seen <= static_cast<int>(Seen::kUnknownName); ++seen) {
    for (int listening = 0; listening <= static_cast<int>(Listening::kFailed); ++listening) {
      for (int back = 0; back <= static_cast<int>(Seen::kUnknownName); ++back) {
        for (int bits = 0; bits < 16; ++bits) {
          HostingFacts facts{.seen = static_cast<Seen>(seen),
                             .owns_address = (bits & 1) != 0,
                             .explicit_rank_zero = (bits & 2) != 0,
                             .is_host = {},
                             .listening = static_cast<Listening>(listening),
                             .seen_back = static_cast<Seen>(back),
                             .own_instance = (bits & 4) != 0,
                             .deadline_passed = true};
          if ((bits & 8) != 0) facts.is_host = (bits & 1) != 0;
          const HostingDecision decision = decide_hosting(facts);
          CHECK_FALSE(in_words(decision.why).empty());
          CHECK((decision.what == Do::kRefuse) == (decision.exit_code != 0));
          CHECK(decision.what != Do::kListen);
          if (decision.what == Do::kLook) CHECK(facts.seen == Seen::kNotLooked);
          if (decision.what == Do::kDialBack) CHECK(facts.seen_back == Seen::kNotLooked);
          if (decision.what == Do::kHost) CHECK(facts.own_instance);
        }
      }
    }
  }
}

}  // namespace muster::rendezvous
