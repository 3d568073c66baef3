// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/first_cause.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "proto/base/check.h"

namespace muster::rendezvous {

namespace {

bool is_loss(const Cause& cause) {
  return cause.failure.kind == FailureKind::kNodeLost;
}

bool earlier_on_node(const Cause& a, const Cause& b) {
  if (a.failure.secondary != b.failure.secondary) return !a.failure.secondary;
  return a.order < b.order;
}

// A loss has no place in the wait set. What a node reported was before it, but for what happened
// when the node was lost already: it came back, and what ended on it had followed the others.
bool loss_was_first(const Cause& loss, const Cause& other) {
  if (is_loss(other)) return loss.happened < other.happened;
  return other.failure.secondary || other.happened >= loss.reported;
}

// The earliest of each node, by node.
std::map<NodeName, const Cause*> first_of_nodes(const std::vector<const Cause*>& causes) {
  std::map<NodeName, const Cause*> firsts;
  for (const bool losses : {false, true}) {
    for (const Cause* cause : causes) {
      if (is_loss(*cause) != losses) continue;
      const auto [at, is_new] = firsts.emplace(cause->failure.node, cause);
      if (is_new) continue;
      const auto earlier = losses ? loss_was_first : earlier_on_node;
      if (earlier(*cause, *at->second)) at->second = cause;
    }
  }
  return firsts;
}

// Best of different nodes; `ambiguous` when time alone could not tell.
const Cause* best_between_nodes(const std::map<NodeName, const Cause*>& firsts, bool& ambiguous) {
  std::vector<const Cause*> rest;
  for (const auto& [node, cause] : firsts)
    rest.push_back(cause);
  const bool any_primary =
      std::any_of(rest.begin(), rest.end(), [](const Cause* c) { return !c->failure.secondary; });
  std::erase_if(rest, [&](const Cause* c) { return any_primary && c->failure.secondary; });
  const Cause* earliest =
      *std::min_element(rest.begin(), rest.end(),
                        [](const Cause* a, const Cause* b) { return a->happened < b->happened; });
  std::erase_if(rest,
                [&](const Cause* c) { return c->happened - earliest->happened >= kOrderDoubt; });
  ambiguous = rest.size() > 1;
  const auto evidence = [](const Cause* cause) { return evidence_of(cause->failure); };
  const Evidence best =
      evidence(*std::min_element(rest.begin(), rest.end(), [&](const Cause* a, const Cause* b) {
        return evidence(a) < evidence(b);
      }));
  std::erase_if(rest, [&](const Cause* c) { return evidence(c) != best; });
  // Words of some say nothing about those that are silent.
  const bool all_spoke =
      std::all_of(rest.begin(), rest.end(), [](const Cause* c) { return c->spoke.has_value(); });
  const auto began = [all_spoke](const Cause* c) { return all_spoke ? *c->spoke : c->happened; };
  return *std::min_element(rest.begin(), rest.end(),
                           [&](const Cause* a, const Cause* b) { return began(a) < began(b); });
}

// Ranks that wait for each other stand still together, and each node blames one of its own: a
// stopped process is to blame, else who has come least far, else it cannot be told.
const Cause* who_hangs(const std::vector<const Cause*>& causes, bool& ambiguous) {
  const auto place = [](const Cause* cause) {
    return std::pair(!cause->hang->stopped, cause->hang->step);
  };
  std::vector<const Cause*> hung;
  for (const Cause* cause : causes) {
    if (cause->hang) hung.push_back(cause);
  }
  const auto before = [&](const Cause* a, const Cause* b) {
    if (place(a) != place(b)) return place(a) < place(b);
    return std::tie(a->happened, a->failure.node) < std::tie(b->happened, b->failure.node);
  };
  const Cause* first = *std::min_element(hung.begin(), hung.end(), before);
  const auto as_far = [&](const Cause* cause) { return place(cause) == place(first); };
  ambiguous = first->hang->ambiguous || std::count_if(hung.begin(), hung.end(), as_far) > 1;
  return first;
}

// With a node lost, only what happened on lost nodes can be first. A stop signal seen on a node
// that then went away belongs to its going, not before it.
std::vector<const Cause*> eligible(const std::vector<Cause>& causes) {
  std::vector<const Cause*> chosen;
  std::map<NodeName, bool> lost;
  for (const Cause& cause : causes) {
    if (is_loss(cause)) lost[cause.failure.node] = true;
  }
  for (const Cause& cause : causes) {
    const bool on_lost = lost.contains(cause.failure.node);
    const bool of_going =
        on_lost && !is_loss(cause) && (cause.failure.secondary || is_stop_signal(cause));
    if ((lost.empty() || on_lost) && !of_going) chosen.push_back(&cause);
  }
  return chosen;
}

}  // namespace

std::optional<Verdict> settle_first_cause(const std::vector<Cause>& causes,
                                          std::size_t victims_kept) {
  const std::vector<const Cause*> chosen = eligible(causes);
  if (chosen.empty()) return std::nullopt;
  bool ambiguous = false;
  const Cause* first = best_between_nodes(first_of_nodes(chosen), ambiguous);
  if (first->hang) first = who_hangs(chosen, ambiguous);
  Verdict verdict{*first, {}};
  verdict.first.failure.ambiguous = ambiguous;
  for (const Cause& cause : causes) {
    if (&cause == first) continue;
    if (verdict.victims.size() == victims_kept) break;
    verdict.victims.push_back(cause.failure);
  }
  return verdict;
}

bool is_stop_signal(const Cause& cause) {
  return cause.stops_agent || muster::is_stop_signal(ending_signal(cause.failure));
}

int exit_code_of(const Failure& failure) {
  switch (failure.kind) {
    case FailureKind::kExit:
    case FailureKind::kSpawn: return failure.exit_code.value_or(1);
    case FailureKind::kSignal: return 128 + failure.signal.value_or(0);
    case FailureKind::kOom: return 137;
    case FailureKind::kHang: return 124;
    case FailureKind::kNodeLost: return 1;
  }
  check_failed("FailureKind in range", __FILE__, __LINE__);
}

std::string describe(const Failure& failure) {
  std::string text = failure.rank ? "rank " + std::to_string(*failure.rank) + " on node " : "node ";
  text += failure.node;
  switch (failure.kind) {
    case FailureKind::kExit:
      text += " exited with code " + std::to_string(failure.exit_code.value_or(1));
      break;
    case FailureKind::kSignal:
      text += " was killed by " + signal_name(failure.signal.value_or(0));
      if (failure.core_dumped) text += " (core dumped)";
      break;
    case FailureKind::kOom: text += " was killed for lack of memory"; break;
    case FailureKind::kHang: text += " made no progress"; break;
    case FailureKind::kSpawn: text += " could not be started"; break;
    case FailureKind::kNodeLost: text += " is lost"; break;
  }
  if (!failure.detail.empty()) text += " (" + failure.detail + ")";
  return text;
}

}  // namespace muster::rendezvous
