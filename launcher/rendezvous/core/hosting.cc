// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/hosting.h"

namespace muster::rendezvous {
namespace {

using Do = HostingDecision::Do;
using Why = HostingDecision::Why;

constexpr int kUsage = 2;
constexpr int kJoinTimeout = 75;

HostingDecision retry(const HostingFacts& facts, Do what, Why why) {
  if (facts.deadline_passed) return {Do::kRefuse, why, false, kJoinTimeout};
  return {what, why, true, 0};
}

// This node listens already: does the endpoint lead to it?
HostingDecision decide_listening(const HostingFacts& facts) {
  switch (facts.seen_back) {
    case Seen::kNotLooked: return {Do::kDialBack, Why::kCheckReach, false, 0};
    case Seen::kMuster:
      return facts.own_instance ? HostingDecision{Do::kHost, Why::kReachesUs, false, 0}
                                : HostingDecision{Do::kJoin, Why::kReachesAnother, false, 0};
    case Seen::kStranger: return retry(facts, Do::kDialBack, Why::kHeldByStranger);
    case Seen::kNothing:
    case Seen::kSilent:
    case Seen::kUnknownName: break;
  }
  return retry(facts, Do::kDialBack, Why::kDoesNotReachUs);
}

// Why an earlier try to listen came to nothing, where there was one.
std::optional<Why> earlier_failure(Listening listening) {
  switch (listening) {
    case Listening::kAddressInUse: return Why::kInUse;
    case Listening::kFailed: return Why::kCannotListen;
    case Listening::kNotPermitted: return Why::kMayNotListen;
    case Listening::kNotTried:
    case Listening::kYes: break;
  }
  return std::nullopt;
}

// Nobody answers: may this node offer itself, and why (not)?
HostingDecision decide_offer(const HostingFacts& facts) {
  const auto listen = [&](Why why) {
    return facts.deadline_passed
               ? HostingDecision{Do::kRefuse, earlier_failure(facts.listening).value_or(why), false,
                                 kJoinTimeout}
               : HostingDecision{Do::kListen, why, false, 0};
  };
  if (facts.is_host.has_value()) {
    return *facts.is_host ? listen(Why::kToldToHost) : retry(facts, Do::kLook, Why::kToldNotToHost);
  }
  if (facts.owns_address) return listen(Why::kAddressIsOurs);
  if (facts.explicit_rank_zero) return listen(Why::kRankZeroOffers);
  return retry(facts, Do::kLook, Why::kWaitForOwner);
}

}  // namespace

HostingDecision decide_hosting(const HostingFacts& facts) {
  if (facts.listening == Listening::kYes) return decide_listening(facts);
  // Even after a failed try to listen: whoever took the address may be the server.
  if (facts.seen == Seen::kMuster) return {Do::kJoin, Why::kServerAnswers, false, 0};
  if (facts.listening == Listening::kNotPermitted) {
    return {Do::kRefuse, Why::kMayNotListen, false, kUsage};
  }
  // One look at least, however late it is; and a fresh one after each failed try to listen.
  if (facts.seen == Seen::kNotLooked) {
    const std::optional<Why> failure = earlier_failure(facts.listening);
    return {Do::kLook, failure.value_or(Why::kNotLookedYet), failure.has_value(), 0};
  }
  if (facts.seen == Seen::kStranger) return retry(facts, Do::kLook, Why::kHeldByStranger);
  return decide_offer(facts);
}

std::string in_words(HostingDecision::Why why) {
  switch (why) {
    case Why::kNotLookedYet: return "nothing has answered yet";
    case Why::kServerAnswers: return "a Muster server answers there";
    case Why::kAddressIsOurs: return "the address is this host's";
    case Why::kToldToHost: return "--rdzv-conf is_host=true";
    case Why::kRankZeroOffers: return "nobody was found there and this is node rank 0";
    case Why::kWaitForOwner: return "nobody answers there, and the address is not this host's";
    case Why::kToldNotToHost: return "nobody answers there, and is_host=false";
    case Why::kHeldByStranger: return "something answers there that does not speak Muster";
    case Why::kCheckReach: return "listening; does the endpoint lead here?";
    case Why::kReachesUs: return "the endpoint leads to our server";
    case Why::kReachesAnother: return "the endpoint leads to another Muster server";
    case Why::kDoesNotReachUs: return "we listen, but the endpoint does not lead here";
    case Why::kInUse: return "the port is in use, and nothing there answers as Muster";
    case Why::kMayNotListen: return "not allowed to listen there";
    case Why::kCannotListen: return "cannot listen there";
  }
  return "";
}

std::string in_words(Seen seen) {
  switch (seen) {
    case Seen::kNotLooked: return "not looked yet";
    case Seen::kMuster: return "a Muster server";
    case Seen::kNothing: return "nobody";
    case Seen::kStranger: return "something that does not speak Muster";
    case Seen::kSilent: return "no answer";
    case Seen::kUnknownName: return "the name has no address";
  }
  return "";
}

}  // namespace muster::rendezvous
