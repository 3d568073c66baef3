// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/reasons.h"

#include <algorithm>
#include <utility>

namespace muster::sim {

void Reasons::server_started(bool remembers) {
  if (!remembers) stories_.clear();
  // After a step of the time of day a generation may seem to have run well for long.
  if (options_->wall_steps <= 0) return;
  for (auto& [run, story] : stories_)
    story.losses.in_row = 0;
}

// Which of it counts as progress depends on what the server took of earlier reports.
void Reasons::reported(const Heartbeat& heartbeat) {
  if (heartbeat.progress.empty()) return;
  for (auto& [run, story] : stories_)
    story.losses.in_row = 0;
}

// Guarantee 3: free as far as --max-node-losses says, in a job that can do with fewer nodes.
void Reasons::lost(Story& story, bool charged) {
  ++story.losses.ever;
  ++story.losses.in_row;
  const std::uint32_t most = options_->policy.max_node_losses;
  const bool elastic = story.min_nodes < story.max_nodes;
  if (!charged && !elastic) fail("G3: a lost node cost nothing where none can be spared");
  if (!charged && story.losses.in_row > most) {
    fail("G3: lost node " + std::to_string(story.losses.in_row) + " in a row cost nothing");
  }
  if (charged && elastic && story.losses.ever <= most) {
    fail("G3: the charge for a lost node came too early");
  }
}

std::optional<std::string> Reasons::stepped(const rendezvous::Event& event,
                                            const std::vector<rendezvous::Action>& actions,
                                            Instant now) {
  bool joins = false;
  if (const auto* said = std::get_if<rendezvous::AgentSaid>(&event)) {
    joins = std::holds_alternative<Join>(said->message.body);
    const auto of = stories_.find(said->message.envelope.run);
    if (of != stories_.end()) of->second.crashes.heard(said->message, now);
    if (const auto* beat = std::get_if<Heartbeat>(&said->message.body)) reported(*beat);
    const auto* exited = std::get_if<WorkerExited>(&said->message.body);
    if (exited != nullptr && exited->agent_signaled) {
      for (auto& [run, story] : stories_)
        story.left = true;
    }
  }
  if (const auto* asked = std::get_if<rendezvous::OperatorAsked>(&event)) {
    ordered(asked->order, actions);
  }
  for (const rendezvous::Action& action : actions) {
    if (const auto* persist = std::get_if<rendezvous::Persist>(&action)) {
      written(persist->record);
      note_stop(stories_[persist->record.run], persist->record, now);
    } else if (const auto* emit = std::get_if<rendezvous::Emit>(&action)) {
      told(stories_[emit->run], emit->event, joins, now);
    }
  }
  for (auto& [run, story] : stories_)
    story.used_before = story.used;
  return failure_;
}

// What is refused is not written.
void Reasons::ordered(const rendezvous::Order& order,
                      const std::vector<rendezvous::Action>& actions) {
  const bool reforms = std::holds_alternative<rendezvous::ScaleJob>(order) ||
                       std::holds_alternative<rendezvous::RestartJob>(order);
  for (const rendezvous::Action& action : actions) {
    const auto* persist = std::get_if<rendezvous::Persist>(&action);
    if (persist != nullptr && reforms) stories_[persist->record.run].asked = true;
  }
}

void Reasons::written(const rendezvous::JobRecord& record) {
  for (const RunId& alias : record.aliases) {
    const auto ours = stories_.find(alias);
    if (ours == stories_.end()) continue;
    const Story moved = ours->second;
    stories_.erase(ours);
    stories_[record.run] = moved;
  }
  Story& story = stories_[record.run];
  story.used = record.restarts_used;
  story.min_nodes = record.spec.min_nodes;
  story.max_nodes = record.spec.max_nodes;
  story.most = std::max(story.most, story.max_nodes);
}

// Also one that could be sent to nobody yet.
void Reasons::note_stop(Story& story, const rendezvous::JobRecord& record, Instant now) {
  using Why = rendezvous::StopWhy;
  const bool announced =
      record.stop && record.stop->why != Why::kFailure && record.stop->why != Why::kStateLost;
  if (announced) story.crashes.stop_ordered(now);
}

void Reasons::told(Story& story, const JobEvent& event, bool joins, Instant now) {
  if (const auto* failed = std::get_if<event::GenerationFailed>(&event.body)) {
    const Generation generation = event.generation.value_or(kNoGeneration);
    if (story.failed) {
      fail("F1: a second first cause of generation " + std::to_string(generation));
    }
    if (generation != story.generation) fail("F1: a first cause of a generation that is not on");
    story.failed = failed->first_cause.kind;
  } else if (const auto* restart = std::get_if<event::RestartScheduled>(&event.body)) {
    scheduled(story, *restart, joins);
  } else if (const auto* formed = std::get_if<event::GenerationFormed>(&event.body)) {
    this->formed(story, event.generation.value_or(kNoGeneration), *formed, now);
  } else if (std::holds_alternative<event::NodeLeft>(event.body)) {
    story.left = true;
  } else if (std::holds_alternative<event::StateLost>(event.body)) {
    story.state_lost = true;
  }
}

// A worker's failure costs one, a lost node as the budget says, all else nothing.
void Reasons::scheduled(Story& story, const event::RestartScheduled& restart, bool joins) {
  story.scheduled = true;
  const bool lost = story.failed == FailureKind::kNodeLost;
  if (story.failed && !lost && !restart.charged) fail("G3: a worker's failure cost nothing");
  if (lost) this->lost(story, restart.charged);
  // Leaps of the server's own clock would have to be known.
  const bool exact = options_->server_leaps <= 0 && options_->wall_steps <= 0;
  if (exact && !story.failed && !story.state_lost && story.crashes.one_was_first()) {
    fail("F6: a crash was taken for what a leave took along");
  }
  if (!story.failed && restart.charged) fail("G3: a restart without a failure was charged");
  if (restart.restarts_used != story.used) fail("G3: what was told is not what was written");
  // One that comes back may know of charges that this server does not.
  const std::uint32_t cost = story.used - story.used_before;
  if (!joins && cost != (restart.charged ? 1U : 0U)) {
    fail("G3: a restart cost " + std::to_string(cost) + " of the budget");
  }
}

void Reasons::formed(Story& story, Generation generation, const event::GenerationFormed& formed,
                     Instant now) {
  if (!fits(story, generation, formed.reason)) {
    fail("F2: generation " + std::to_string(generation) + " is formed for " +
         to_word(formed.reason) + ", which did not happen");
  }
  const std::uint32_t used = story.used;
  const std::uint32_t max_nodes = story.max_nodes;
  const std::uint32_t min_nodes = story.min_nodes;
  const Losses losses = story.losses;
  story = Story{};
  story.min_nodes = min_nodes;
  story.losses = losses;
  story.max_nodes = story.most = max_nodes;
  story.generation = generation;
  story.nodes = formed.nodes.size();
  story.used = used;
  story.crashes.formed(generation, now);
}

bool Reasons::fits(const Story& story, Generation generation, FormReason reason) const {
  switch (reason) {
    case FormReason::kStart: return generation == 0;
    case FormReason::kStateLost: return story.state_lost;
    case FormReason::kWorkerFailure:
      return story.scheduled && story.failed && *story.failed != FailureKind::kNodeLost;
    case FormReason::kNodeLost: return story.scheduled && story.failed == FailureKind::kNodeLost;
    case FormReason::kNodeJoined:
      return story.scheduled && !story.failed && story.nodes < story.most;
    case FormReason::kNodeLeft: return story.scheduled && !story.failed && story.left;
    case FormReason::kRequested: return story.scheduled && !story.failed && story.asked;
    case FormReason::kPreempted: return false;  // nobody asks for it here
  }
  return false;
}

}  // namespace muster::sim
