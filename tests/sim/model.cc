// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/model.h"

#include <algorithm>

#include "tests/sim/naive.h"

namespace muster::sim {
namespace {

bool is_loss(const rendezvous::Action& action, const NodeName*& node, const RunId*& run) {
  const auto* emit = std::get_if<rendezvous::Emit>(&action);
  if (emit == nullptr) return false;
  const auto* left = std::get_if<event::NodeLeft>(&emit->event.body);
  if (left == nullptr || left->why != event::NodeLeft::Why::kLost) return false;
  node = &*emit->event.node;
  run = &emit->run;
  return true;
}

std::string text_of(const std::vector<MemberRanks>& ranks) {
  std::string line;
  for (const MemberRanks& member : ranks)
    line += (line.empty() ? "" : " ") + member.node + "x" + std::to_string(member.count);
  return line;
}

}  // namespace

bool Model::Round::has(const NodeName& node) const {
  return std::any_of(ranks.begin(), ranks.end(),
                     [&](const MemberRanks& member) { return member.node == node; });
}

void Model::server_started(bool remembers) {
  streams_.clear();
  if (!remembers) runs_.clear();
  for (auto& [id, run] : runs_) {
    run.round.reset();
    for (auto& [name, node] : run.nodes) {
      node.stream.reset();
      node.refusals = 0;
      node.ask_again = Instant{};
    }
  }
}

void Model::stalled(Duration by) {
  for (auto& [id, run] : runs_) {
    if (run.round) run.round->due = run.round->due + by;
  }
}

std::optional<std::string> Model::stepped(const rendezvous::Event& event,
                                          const std::vector<rendezvous::Action>& actions,
                                          Instant now) {
  if (const auto* said = std::get_if<rendezvous::AgentSaid>(&event)) heard(*said, actions, now);
  if (const auto* end = std::get_if<rendezvous::StreamLost>(&event)) stream_ended(end->session);
  if (const auto* asked = std::get_if<rendezvous::OperatorAsked>(&event)) ordered(*asked, actions);
  if (std::holds_alternative<rendezvous::Tick>(event)) time_passed(actions, now);
  for (const rendezvous::Action& action : actions) {
    const NodeName* node = nullptr;
    const RunId* run = nullptr;
    if (const auto* persist = std::get_if<rendezvous::Persist>(&action)) {
      written(*persist, actions);
    } else if (const auto* forget = std::get_if<rendezvous::Forget>(&action)) {
      runs_.erase(forget->run);
    } else if (const auto* send = std::get_if<rendezvous::Send>(&action)) {
      sent(event, *send, now);
    } else if (const auto* close = std::get_if<rendezvous::CloseSession>(&action)) {
      stream_ended(close->session);
    } else if (is_loss(action, node, run)) {
      lost(*run, *node);
    }
  }
  return disagreement_;
}

void Model::heard(const rendezvous::AgentSaid& said, const std::vector<rendezvous::Action>& actions,
                  Instant now) {
  const auto stream = streams_.find(said.session);
  if (stream == streams_.end()) return;
  // What came too late counts for nothing; the server says so to whom it concerns.
  for (const rendezvous::Action& action : actions) {
    const auto* send = std::get_if<rendezvous::Send>(&action);
    if (send == nullptr || send->session != said.session) continue;
    if (std::holds_alternative<Stale>(send->message.body)) return;
  }
  Run& run = runs_[stream->second.first];
  const auto node = run.nodes.find(stream->second.second);
  if (node != run.nodes.end()) answered(run, node->second, said.message, now);
}

void Model::answered(Run& run, Node& node, const AgentMessage& message, Instant now) {
  if (const auto* answer = std::get_if<PrepareAnswer>(&message.body)) {
    if (!run.round || answer->attempt != run.round->attempt) return;
    const bool needs_port = run.round->ranks.front().node == node.who.name;
    if (answer->accepted && (!needs_port || answer->master_port != 0)) {
      run.round->silent.erase(node.who.name);
      node.refusals = 0;
    } else {
      set_aside(node, now);
      run.round.reset();
    }
  } else if (std::holds_alternative<StopConfirmed>(message.body)) {
    if (message.envelope.generation == node.work) node.works = false;
  } else if (std::holds_alternative<Leave>(message.body)) {
    node.leaves = true;
    if (run.round && run.round->has(node.who.name)) run.round.reset();
  }
}

// What an operator made of it; of which run says what was written of it.
void Model::ordered(const rendezvous::OperatorAsked& asked,
                    const std::vector<rendezvous::Action>& actions) {
  for (const rendezvous::Action& action : actions) {
    const auto* persist = std::get_if<rendezvous::Persist>(&action);
    if (persist == nullptr) continue;
    Run& run = runs_[persist->record.run];
    if (const auto* scale = std::get_if<rendezvous::ScaleJob>(&asked.order)) {
      run.max_nodes = scale->max_nodes;
      run.round.reset();
    } else if (const auto* drain = std::get_if<rendezvous::DrainNode>(&asked.order)) {
      const auto node = run.nodes.find(drain->node);
      if (node != run.nodes.end()) node->second.leaves = true;
      if (run.round && run.round->has(drain->node)) run.round.reset();
    }
  }
}

// Twice as long each time, from two heartbeats to thirty-two times as much.
void Model::set_aside(Node& node, Instant now) const {
  Duration wait = std::max<Duration>(2 * options_->policy.heartbeat, 1s);
  for (std::uint32_t i = 0; i < std::min(node.refusals, 5U); ++i)
    wait *= 2;
  ++node.refusals;
  node.ask_again = now + wait;
}

// Those who did not answer in time are passed over, unless one of the chosen was lost just now:
// then all are chosen anew.
void Model::time_passed(const std::vector<rendezvous::Action>& actions, Instant now) {
  for (auto& [id, run] : runs_) {
    if (!run.round) continue;
    for (const rendezvous::Action& action : actions) {
      const NodeName* node = nullptr;
      const RunId* of = nullptr;
      if (is_loss(action, node, of) && *of == id && run.round->has(*node)) {
        run.round.reset();
        break;
      }
    }
    if (!run.round || now < run.round->due) continue;
    for (const NodeName& name : run.round->silent) {
      const auto node = run.nodes.find(name);
      if (node != run.nodes.end()) set_aside(node->second, now);
    }
    run.round.reset();
  }
}

void Model::written(const rendezvous::Persist& persist,
                    const std::vector<rendezvous::Action>& actions) {
  // Ours turned out to be another run: its nodes and places are that one's.
  for (const RunId& alias : persist.record.aliases) {
    const auto ours = runs_.find(alias);
    if (ours == runs_.end()) continue;
    Run moved = std::move(ours->second);
    moved.round.reset();  // it was for a generation of ours
    runs_.erase(ours);
    runs_[persist.record.run] = std::move(moved);
    for (auto& [session, stream] : streams_) {
      if (stream.first == alias) stream.first = persist.record.run;
    }
  }
  Run& run = runs_[persist.record.run];
  run.confined.clear();
  for (const rendezvous::OffenderRecord& offender : persist.record.offenders) {
    if (offender.until) run.confined.insert(offender.node);
  }
  // A generation that nobody is sent was learnt from agents: a round was for an earlier one.
  const RunId& id = persist.record.run;
  const bool commits = std::any_of(actions.begin(), actions.end(), [&](const auto& action) {
    const auto* send = std::get_if<rendezvous::Send>(&action);
    return send != nullptr && std::holds_alternative<Commit>(send->message.body) &&
           send->message.envelope.run == id;
  });
  if (!commits && persist.record.generation > run.generation) {
    run.generation = persist.record.generation;
    run.round.reset();
  }
  // One that leaves goes without a word.
  const auto gone = [&](const NodeName& name) {
    const auto node = run.nodes.find(name);
    if (node != run.nodes.end() && node->second.leaves) run.nodes.erase(node);
  };
  for (const NodeName& name : persist.removed)
    gone(name);
  for (const rendezvous::NodeRecord& node : persist.nodes) {
    if (!node.member) gone(node.node);
  }
}

void Model::sent(const rendezvous::Event& event, const rendezvous::Send& send, Instant now) {
  const ServerMessage& message = send.message;
  const auto* said = std::get_if<rendezvous::AgentSaid>(&event);
  if (std::holds_alternative<JoinAccepted>(message.body)) {
    const auto* join = said != nullptr ? std::get_if<Join>(&said->message.body) : nullptr;
    if (join != nullptr && said->session == send.session) taken_in(*said, *join, message.envelope);
  } else if (const auto* prepare = std::get_if<Prepare>(&message.body)) {
    prepared(runs_[message.envelope.run], *prepare, now);
  } else if (std::holds_alternative<Commit>(message.body)) {
    committed(runs_[message.envelope.run], message);
  }
}

void Model::taken_in(const rendezvous::AgentSaid& said, const Join& join,
                     const Envelope& envelope) {
  Run& run = runs_[envelope.run];
  Node& node = run.nodes[envelope.node];
  if (node.incarnation != envelope.incarnation) {
    const NodeFacts& facts = join.node;
    node = Node{};
    node.who = {facts.name,   facts.host,           "", facts.slots, facts.node_rank,
                std::nullopt, facts.scheduler_index};
    node.incarnation = envelope.incarnation;
    // A round under way is begun anew where it has room for one more.
    if (run.round && run.round->ranks.size() < max_nodes(run)) run.round.reset();
  }
  // It may run what no server that is alive ever ordered.
  if (join.reattach && join.reattach->workers_running && join.reattach->generation > node.work) {
    node.works = true;
    node.work = join.reattach->generation;
  }
  node.who.addr = said.peer_addr;
  node.stream = said.session;
  streams_[said.session] = {envelope.run, envelope.node};
}

void Model::stream_ended(SessionId session) {
  const auto stream = streams_.find(session);
  if (stream == streams_.end()) return;
  Run& run = runs_[stream->second.first];
  const auto node = run.nodes.find(stream->second.second);
  streams_.erase(stream);
  if (node != run.nodes.end() && node->second.stream == session) node->second.stream.reset();
}

void Model::lost(const RunId& id, const NodeName& name) {
  Run& run = runs_[id];
  run.nodes.erase(name);
  if (run.round && run.round->has(name)) run.round.reset();
}

std::vector<MemberRanks> Model::decide(const Run& run, Instant now) const {
  std::vector<const Node*> able;
  for (const auto& [name, node] : run.nodes) {
    if (run.confined.contains(name)) continue;
    if (node.stream && !node.leaves && !node.works && node.ask_again <= now) able.push_back(&node);
  }
  // Those of the generation before, then those who came first.
  std::vector<rendezvous::Candidate> chosen;
  while (chosen.size() < max_nodes(run) && !able.empty()) {
    const auto claim = [&](const Node* node) {
      const auto place = run.places.find(node->who.name);
      return place == run.places.end() ? std::pair<bool, std::uint64_t>{true, node->incarnation}
                                       : std::pair<bool, std::uint64_t>{false, place->second};
    };
    const auto best = std::min_element(able.begin(), able.end(), [&](const Node* a, const Node* b) {
      return claim(a) < claim(b);
    });
    chosen.push_back((*best)->who);
    const auto place = run.places.find(chosen.back().name);
    if (place != run.places.end()) chosen.back().previous = place->second;
    able.erase(best);
  }
  return naive_ranks(std::move(chosen));
}

void Model::prepared(Run& run, const Prepare& prepare, Instant now) {
  const Assignment& told = prepare.assignment;
  const bool again = run.round && run.round->attempt == prepare.attempt &&
                     run.round->generation == told.generation;
  if (!again) {
    Round round;
    round.generation = told.generation;
    round.attempt = prepare.attempt;
    round.ranks = decide(run, now);
    for (const MemberRanks& member : round.ranks)
      round.silent.insert(member.node);
    round.due = now + std::max<Duration>(2 * options_->policy.heartbeat, 1s);
    run.round = std::move(round);
    if (told.generation != run.generation + 1) {
      disagree("M1: generation " + std::to_string(told.generation) + " follows " +
               std::to_string(run.generation));
    }
  }
  if (told.members == run.round->ranks) return;
  disagree("M2: generation " + std::to_string(told.generation) + " is published as " +
           text_of(told.members) + "; the model says " + text_of(run.round->ranks));
}

void Model::committed(Run& run, const ServerMessage& message) {
  const Generation generation = message.envelope.generation;
  const auto& body = std::get<Commit>(message.body);
  if (!run.round) {  // told again, or to the next of its members
    const bool member = run.places.contains(message.envelope.node);
    if (generation == run.generation && member) return;
    return disagree("M3: Commit of generation " + std::to_string(generation) + " to " +
                    message.envelope.node + ", which no round chose");
  }
  if (generation != run.round->generation || body.attempt != run.round->attempt) {
    return disagree("M3: Commit of another round than was prepared");
  }
  for (const NodeName& name : run.round->silent)
    disagree("M3: Commit without an answer of " + name);
  for (const auto& [name, node] : run.nodes) {
    if (!node.works) continue;
    disagree("M4: Commit of generation " + std::to_string(generation) + " before " + name +
             " confirmed the stop of " + std::to_string(node.work));
  }
  run.places.clear();
  for (const MemberRanks& member : run.round->ranks) {
    Node& node = run.nodes[member.node];
    if (!node.stream) disagree("M3: Commit while " + member.node + " has no stream");
    node.works = true;
    node.work = generation;
    run.places[member.node] = member.group_rank;
  }
  run.generation = generation;
  run.round.reset();
}

}  // namespace muster::sim
