// SPDX-License-Identifier: Apache-2.0
//
// What an operator asks for. All of it is free, and none of it undoes what a rank has finished:
// once one of a generation has exited 0, only a stop ends that generation early.
#include <algorithm>

#include "launcher/rendezvous/core/job.h"

namespace muster::rendezvous {

namespace {

// Drained agents that are remembered, so that one which did not hear of it does not come back.
constexpr std::size_t kDrainedKept = 1024;

using Kind = OrderAnswer::Kind;

std::string in_words(const NodeRange& range) {
  const std::string max = std::to_string(range.max);
  return range.min == range.max ? max : std::to_string(range.min) + ":" + max;
}

std::string count_of(std::size_t count, const char* one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

}  // namespace

OrderAnswer Job::operate(const Order& order, const std::string& by, Instant now) {
  begin(now);
  if (finished() || server_left_) return {Kind::kUnknown, "job \"" + spec_.job + "\" is over"};
  const bool stops = std::holds_alternative<StopJob>(order);
  if (stop_requested_by_ && !stops) {
    return {Kind::kRefused, "job \"" + spec_.job + "\" is being stopped by " + *stop_requested_by_};
  }
  const std::string who = by.empty() ? "an operator" : by;
  OrderAnswer answer = std::visit([&](const auto& what) { return obey(what, who); }, order);
  // Whom an order makes wait for nodes did not wait for them before.
  const bool changes_nodes =
      std::holds_alternative<ScaleJob>(order) || std::holds_alternative<DrainNode>(order);
  if (answer.accepted() && changes_nodes) {
    join_deadline_ = std::max(join_deadline_, now_ + spec_.policy.join_timeout);
  }
  end();
  return answer;
}

OrderAnswer Job::obey(const StopJob&, const std::string& by) {
  if (!stop_requested_by_) {
    stop_requested_by_ = by;
    begin_stop(StopWhy::kRequested, true, "stopped by " + by);
  }
  return {Kind::kDone, "job \"" + spec_.job + "\" is being stopped"};
}

// Empty: the generation that runs may be ended early.
std::string Job::finished_ranks() const {
  if (!runs() || life_->done.empty()) return "";
  return "ranks of generation " + std::to_string(generation_) + " have exited 0 (" +
         std::to_string(life_->done.size()) + " of " + std::to_string(life_->world_size) +
         "), and a new one would run them again";
}

// Of an order that leaves the job below MIN, once no generation runs: "; `who` waits for …".
std::string Job::then_waits(const std::string& who) const {
  const auto left = static_cast<std::size_t>(std::count_if(
      members_.begin(), members_.end(), [](const auto& entry) { return !entry.second.leaving; }));
  if (left >= spec_.min_nodes) return "";
  return "; " + who + " waits for " + count_of(spec_.min_nodes - left, "more node");
}

OrderAnswer Job::obey(const ScaleJob& order, const std::string& by) {
  const NodeRange range{order.min_nodes, order.max_nodes};
  if (range.min == 0 || range.min > range.max) {
    return {Kind::kRefused, "MIN:MAX needs 1 <= MIN <= MAX, not " + in_words(range)};
  }
  const std::size_t most = shared_.options.limits.members;
  if (range.max > most) {
    return {Kind::kRefused, "this server takes no more than " + count_of(most, "node") + " a job"};
  }
  spec_.min_nodes = range.min;
  spec_.max_nodes = range.max;
  ++picture_version_;
  if (phase_ == Phase::kPreparing) reopen_round();
  const std::string text = "job \"" + spec_.job + "\" has --nnodes " + in_words(range) + " now";
  if (!runs()) return {Kind::kDone, text + then_waits("it")};
  const std::size_t here = life_->ranks.size();
  const std::size_t next = std::min<std::size_t>(here + late_nodes().size(), range.max);
  const std::string runs_on =
      "; generation " + std::to_string(generation_) + " runs on with " + count_of(here, "node");
  if (here >= range.min && next == here) return {Kind::kDone, text + runs_on};
  if (const std::string ranks = finished_ranks(); !ranks.empty()) {
    return {Kind::kDone, text + runs_on + ": " + ranks};
  }
  if (next < range.min) {  // try_grow() goes on from here
    return {Kind::kDone, text + runs_on + " until " + count_of(range.min - next, "more node") +
                             (range.min - next == 1 ? " is" : " are") + " here"};
  }
  grown_at_ = now_;
  begin_stop(StopWhy::kRequested, true, "scaled to " + in_words(range) + " by " + by);
  return {Kind::kDone, text + "; it goes on with " + count_of(next, "node") + " instead of " +
                           std::to_string(here)};
}

OrderAnswer Job::obey(const RestartJob&, const std::string& by) {
  const std::string running = "generation " + std::to_string(generation_);
  if (phase_ == Phase::kStopping) {
    return {Kind::kDone, "job \"" + spec_.job + "\": " + running + " is being stopped already"};
  }
  if (!runs()) {
    return {Kind::kDone, "job \"" + spec_.job + "\" is forming a new generation already"};
  }
  if (const std::string ranks = finished_ranks(); !ranks.empty()) return {Kind::kRefused, ranks};
  const std::size_t here = life_->ranks.size();
  if (const std::size_t next = here + late_nodes().size(); next < spec_.min_nodes) {
    return {Kind::kRefused, running + " runs on with " + count_of(here, "node") +
                                ", and a new one needs " +
                                count_of(spec_.min_nodes - next, "more node")};
  }
  begin_stop(StopWhy::kRequested, true, "restarted by " + by);
  return {Kind::kDone,
          "job \"" + spec_.job + "\": " + running + " is stopped and a new one is formed"};
}

// ---------------------------------------------------------------- drain

OrderAnswer Job::obey(const DrainNode& order, const std::string& by) {
  const NodeName& name = order.node;
  Member* member = find(name);
  const std::string quoted = "node \"" + name + "\"";
  if (member != nullptr && drained_.contains({name, member->incarnation})) {
    return {Kind::kDone, quoted + " is being drained already"};
  }
  if (member == nullptr || member->leaving) {
    return {Kind::kUnknown, "job \"" + spec_.job + "\" has no " + quoted};
  }
  if (member->facts.hosts_server && !spec_.policy.linger) {
    return {Kind::kRefused, quoted + " hosts the server of job \"" + spec_.job +
                                "\", which ends with it; `muster stop` ends the job"};
  }
  const bool alone = std::none_of(members_.begin(), members_.end(), [&](const auto& entry) {
    return entry.first != name && !entry.second.leaving;
  });
  if (alone) {
    return {Kind::kRefused,
            quoted + " is the last one of job \"" + spec_.job + "\"; `muster stop` ends the job"};
  }
  const bool disturbs = runs() && works_in_life(*member) && !all_done(name);
  if (const std::string ranks = finished_ranks(); disturbs && !ranks.empty()) {
    return {Kind::kRefused, ranks};
  }
  begin_drain(*member, by);
  const std::string text = quoted + " is being drained";
  return {Kind::kDone, text + then_waits("job \"" + spec_.job + "\" then")};
}

// Those that came first and are gone, as many as are too many.
void Job::forget_drained() {
  while (drained_.size() >= kDrainedKept) {
    auto oldest = drained_.end();
    for (auto at = drained_.begin(); at != drained_.end(); ++at) {
      const Member* member = find(at->first.first);
      const bool here = member != nullptr && member->incarnation == at->first.second;
      const bool older = oldest == drained_.end() || at->first.second < oldest->first.second;
      if (!here && older) oldest = at;
    }
    if (oldest == drained_.end()) return;
    drained_.erase(oldest);
  }
}

void Job::begin_drain(Member& member, const std::string& by) {
  const NodeName& name = member.facts.name;
  forget_drained();
  drained_[{name, member.incarnation}] = by;
  member.leaving = true;
  touch(name);
  ++picture_version_;
  publish_event(node_event(name, event::NodeLeft{event::NodeLeft::Why::kDrained}));
  if (phase_ == Phase::kPreparing && round_->chosen.contains(name)) reopen_round();
  if (!works_in_life(member) || all_done(name)) return;
  begin_stop(StopWhy::kDrain, true, "node " + name + " is drained by " + by);
}

// It runs nothing any more, or only what is left of ranks that have finished.
bool Job::may_go(const Member& member) const {
  const NodeName& name = member.facts.name;
  return !working_.contains(name) || (runs() && works_in_life(member) && all_done(name));
}

void Job::dismiss_drained() {
  if (finished() || server_left_) return;
  std::vector<NodeName> ready;
  for (const auto& [agent, by] : drained_) {
    const Member* member = find(agent.first);
    const bool here = member != nullptr && member->incarnation == agent.second;
    if (here && member->connected() && may_go(*member)) ready.push_back(agent.first);
  }
  for (const NodeName& name : ready) {
    const Member& member = members_.at(name);
    shared_.sessions.detach(*member.session);
    dismiss(*member.session, name, member.incarnation);
    remove(name);
  }
}

void Job::dismiss(SessionId session, const NodeName& node, Incarnation incarnation) {
  Evicted evicted{"drained by " + drained_.at({node, incarnation}), true};
  send_to(session, node, incarnation, generation_, std::move(evicted));
  act(CloseSession{session});
}

}  // namespace muster::rendezvous
