// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/checks.h"

#include <algorithm>
#include <utility>

namespace muster::sim {

void Checks::fail(std::string what) {
  if (!failure_) failure_ = std::move(what);
}

// ---------------------------------------------------------------- the server

void Checks::server_started() {
  ages_inexact_until(clock_.now());
  ++server_life_;
  confined_.clear();
  ++tally["server lives"];
  const bool remembers = options_.journaled && server_life_ > 1 && !after_loss_;
  life_of_.push_back(remembers ? life_of_.back() : server_life_);
  if (remembers) {
    ++tally["server lives from a journal"];
    server_.stops_open.clear();
    server_.over.clear();
    server_.leaves = false;
    for (const auto& [session, node] : streams_)
      stream_lost_.try_emplace(node, clock_.now());
    streams_.clear();
    current_stream_.clear();
    return;
  }
  if (!after_loss_) ranges_.clear();
  drained_.clear();
  server_ = std::exchange(after_loss_, std::nullopt).value_or(ServerRecord{});
  server_.started = clock_.now();
  members_.clear();
  streams_.clear();
  current_stream_.clear();
  stream_lost_.clear();
  left_.clear();
  met_.clear();
  rounds_.clear();
}

// Numbers fall no lower than they were written. What was only in the tail is nowhere, so that no
// server can keep what depends on it: generations, incarnations, charges and orders of which no
// agent reports are forgotten (R4, G3), an outcome may be decided again and differently (R5, G7),
// and nobody waits for nodes that joined, for workers that started, or for fences that began since
// (G2), as with a server that came back with nothing. Within its life the next server owes all.
void Checks::tail_lost(const std::vector<rendezvous::RunRecord>& journal) {
  ++tally["journals without their tails"];
  ages_inexact_until(clock_.now());
  ever_lost_tail_ = true;
  fences_void();
  after_loss_ = ServerRecord{};
  ranges_.clear();
  for (const rendezvous::RunRecord& run : journal) {
    after_loss_->last[run.job.run] = run.job;
    ranges_[run.job.run] = {run.job.spec.min_nodes, run.job.spec.max_nodes};
  }
}

void Checks::wall_stepped(bool ahead) {
  ++tally["steps of the time of day"];
  if (ahead) {
    fences_void();
  } else {
    stepped_back_ = true;
  }
}

// The server died in this step: it may have given nodes up without having said so to anybody.
void Checks::note_torn(const rendezvous::Persist& write) {
  for (const rendezvous::NodeRecord& node : write.nodes) {
    if (!node.member) written_off_[node.node] = clock_.now();
  }
  for (const NodeName& node : write.removed)
    written_off_[node] = clock_.now();
}

// What it waits for began that much earlier for it.
void Checks::server_leapt(Duration length) {
  fences_void();
  ++tally["leaps of a server's clock"];
  for (auto& [node, since] : stream_lost_)
    since = since - length;
}

void Checks::server_stepped(const rendezvous::Event& event,
                            const std::vector<rendezvous::Action>& actions, bool torn) {
  if (const auto* said = std::get_if<rendezvous::AgentSaid>(&event)) {
    if (std::holds_alternative<Leave>(said->message.body)) {
      unread_leaves_.erase(said->message.envelope.node);
    }
    const bool joins = std::holds_alternative<Join>(said->message.body);
    if (joins && !torn) check_join(said->session, actions);
    const bool beats = std::holds_alternative<Heartbeat>(said->message.body);
    if (beats && !torn && !server_.leaves) check_heartbeat(said->session, actions);
  }
  check_order(actions);
  if (const auto* stop = std::get_if<rendezvous::OperatorAsked>(&event)) {
    server_.stops_open.insert(stop->request);
  }
  if (std::holds_alternative<rendezvous::ServerStopping>(event)) {
    // It decides nothing about them any more; they end by themselves.
    server_.leaves = true;
    for (const NodeName& node : members_)
      written_off_[node] = clock_.now();
  }
  note_streams(event);
  for (const rendezvous::Action& action : actions) {
    if (const auto* send = std::get_if<rendezvous::Send>(&action)) {
      const ServerMessage& message = send->message;
      const Envelope& envelope = message.envelope;
      if (std::holds_alternative<JoinAccepted>(message.body)) {
        members_.insert(envelope.node);
        accepted_[envelope.node] = clock_.now();
        current_stream_[envelope.node] = send->session;
        // The same agent that comes back goes on leaving.
        Incarnation& known = incarnation_[envelope.node];
        if (std::exchange(known, envelope.incarnation) != envelope.incarnation) {
          left_.erase(envelope.node);
        }
      }
      if (std::holds_alternative<Evicted>(message.body)) {
        written_off_[envelope.node] = clock_.now();
      }
      if (const auto* body = std::get_if<Commit>(&message.body)) {
        check_commit(message, *body);
        met_.try_emplace({envelope.run, envelope.generation}, members_);
        const bool is_new =
            began_.try_emplace({envelope.run, envelope.generation}, clock_.now()).second;
        if (is_new) unread_leaves_.clear();
      }
      if (const auto* body = std::get_if<Prepare>(&message.body)) check_prepare(message, *body);
      if (const auto* body = std::get_if<OutcomeNotice>(&message.body)) {
        check_outcome(message.envelope.run, body->outcome, "OutcomeNotice");
      }
      if (std::holds_alternative<Stale>(message.body)) ++tally["stale answers"];
    } else if (const auto* write = std::get_if<rendezvous::Persist>(&action)) {
      if (torn) note_torn(*write);
    } else if (const auto* emit = std::get_if<rendezvous::Emit>(&action)) {
      check_emit(*emit);
    } else if (const auto* reply = std::get_if<rendezvous::ReplyOperator>(&action)) {
      if (server_.stops_open.erase(reply->request) == 0) fail("ReplyOperator without a request");
    } else if (const auto* over = std::get_if<rendezvous::JobOver>(&action)) {
      check_outcome(over->run, over->outcome, "JobOver");
      if (!server_.over.insert(over->run).second) fail("JobOver twice for run " + over->run);
    }
  }
}

void Checks::server_wrote(const rendezvous::Event& event,
                          const std::vector<rendezvous::Action>& actions) {
  for (const rendezvous::Action& action : actions) {
    if (const auto* persist = std::get_if<rendezvous::Persist>(&action)) {
      check_persist(persist->record);
      check_range(event, persist->record);
    } else if (const auto* forget = std::get_if<rendezvous::Forget>(&action)) {
      ranges_.erase(forget->run);  // adopted again it is as the agents ask for it
      // Forgotten by a clock that leapt, it may have agents still, who bring earlier numbers.
      if (fence_void_) {
        std::erase_if(published_, [&](const auto& entry) {
          return std::get<RunId>(entry.first) == forget->run;
        });
      }
      // One that starts again does not know it, and an agent that comes late brings its numbers.
      forgotten_.insert(forget->run);
      server_.last.erase(forget->run);
    }
  }
}

void Checks::note_streams(const rendezvous::Event& event) {
  if (const auto* said = std::get_if<rendezvous::AgentSaid>(&event)) {
    const NodeName& node = said->message.envelope.node;
    if (!std::holds_alternative<Join>(said->message.body)) return;
    streams_[said->session] = node;
    stream_lost_.erase(node);
  } else if (const auto* lost = std::get_if<rendezvous::StreamLost>(&event)) {
    const auto stream = streams_.find(lost->session);
    if (stream == streams_.end()) return;
    const NodeName node = stream->second;
    streams_.erase(stream);
    // One that it replaced may end long after it.
    const auto current = current_stream_.find(node);
    if (current == current_stream_.end() || current->second == lost->session) {
      stream_lost_[node] = clock_.now();
    }
  }
}

void Checks::check_join(SessionId session, const std::vector<rendezvous::Action>& actions) {
  int accepted = 0;
  int others = 0;
  bool outcome = false;
  for (const rendezvous::Action& action : actions) {
    const auto* send = std::get_if<rendezvous::Send>(&action);
    if (send == nullptr || send->session != session) continue;
    const ServerBody& body = send->message.body;
    accepted += std::holds_alternative<JoinAccepted>(body) ? 1 : 0;
    const auto* refused = std::get_if<JoinRefused>(&body);
    others += refused != nullptr ? 1 : 0;
    if (refused != nullptr && refused->why == JoinRefused::Why::kNotYet) {
      ++tally["joins sent away from a name that is leaving"];
    }
    others += std::holds_alternative<Evicted>(body) ? 1 : 0;
    outcome = outcome || std::holds_alternative<OutcomeNotice>(body);
  }
  // What an accepted agent brings along (ranks done) may itself be the end of the job.
  const int answers = accepted + others + (outcome && accepted == 0 ? 1 : 0);
  if (answers != 1) fail("R3: a Join got " + std::to_string(answers) + " answers");
}

void Checks::check_heartbeat(SessionId session, const std::vector<rendezvous::Action>& actions) {
  const auto answers = std::count_if(actions.begin(), actions.end(), [&](const auto& action) {
    const auto* send = std::get_if<rendezvous::Send>(&action);
    return send != nullptr && send->session == session &&
           (std::holds_alternative<HeartbeatAck>(send->message.body) ||
            std::holds_alternative<Stale>(send->message.body));
  });
  if (answers != 1) fail("R3: a Heartbeat got " + std::to_string(answers) + " answers");
}

// What a step changes of a run is written before anything of that run leaves.
void Checks::check_order(const std::vector<rendezvous::Action>& actions) {
  std::set<RunId> left;
  for (const rendezvous::Action& action : actions) {
    if (const auto* send = std::get_if<rendezvous::Send>(&action)) {
      left.insert(send->message.envelope.run);
    } else if (const auto* emit = std::get_if<rendezvous::Emit>(&action)) {
      left.insert(emit->run);
    } else if (const auto* over = std::get_if<rendezvous::JobOver>(&action)) {
      left.insert(over->run);
    } else if (const auto* persist = std::get_if<rendezvous::Persist>(&action)) {
      if (left.contains(persist->record.run)) fail("J2: something left before it was written");
    }
  }
}

void Checks::check_prepare(const ServerMessage& message, const Prepare& prepare) {
  const Assignment& assignment = prepare.assignment;
  const std::string key = message.envelope.run + "/" + std::to_string(assignment.generation) + "/" +
                          std::to_string(prepare.attempt);
  std::uint32_t next_rank = 0;
  for (std::size_t i = 0; i < assignment.members.size(); ++i) {
    const MemberRanks& member = assignment.members[i];
    if (member.group_rank != i) fail("R1: group ranks out of order in " + key);
    if (member.first_rank != next_rank) fail("R1: ranks are not 0..n-1 in " + key);
    if (member.count == 0) fail("R1: a member without ranks in " + key);
    next_rank += member.count;
  }
  check_members(message, assignment, key);
  if (next_rank != assignment.world_size) fail("R1: world size is not the sum in " + key);
  const rendezvous::NodeRange& range = ranges_[message.envelope.run];
  if (assignment.members.size() < range.min || assignment.members.size() > range.max) {
    fail("a generation of " + std::to_string(assignment.members.size()) + " nodes in " + key);
  }
  if (assignment.group_rank >= assignment.members.size() ||
      assignment.members[assignment.group_rank].node != message.envelope.node) {
    fail("R1: Prepare sent to another node than its group rank names in " + key);
  }
  if (message.envelope.generation != assignment.generation) {
    fail("Prepare's envelope names another generation in " + key);
  }
  const auto [known, is_new] = rounds_.try_emplace(key);
  if (is_new) {
    known->second.members = assignment.members;
  } else if (known->second.members != assignment.members) {
    fail("R1: two members were sent different assignments in " + key);
  }
}

// Who may not work, and where the others find rank 0.
void Checks::check_members(const ServerMessage& message, const Assignment& told,
                           const std::string& key) {
  for (const MemberRanks& member : told.members) {
    if (confined_.contains(member.node)) fail("Q1: a node in quarantine is chosen in " + key);
    if (drained_.contains({message.envelope.run, member.node})) {
      fail("D1: node " + member.node + ", which is drained, is chosen in " + key);
    }
  }
  std::size_t first = 0;
  while (first < options_.agents && node_name(first) != told.members.front().node)
    ++first;
  // Where the server's own host is reached, the others say: all of them dialed their own address.
  if (options_.hosted && first == 0) return;
  if (told.master_addr != node_address(first)) {
    fail("G1: rank 0 is not at " + told.master_addr + " in " + key);
  }
}

void Checks::check_commit(const ServerMessage& message, const Commit& commit) {
  const std::string key = message.envelope.run + "/" + std::to_string(message.envelope.generation) +
                          "/" + std::to_string(commit.attempt);
  const auto round = rounds_.find(key);
  if (round == rounds_.end()) return;  // prepared by a server before this one
  const auto held = ports_.find({round->second.members.front().node, commit.attempt});
  if (held == ports_.end() || held->second == commit.master_port) return;
  fail("G1: rank 0 does not hold port " + std::to_string(commit.master_port) + " of " + key);
}

void Checks::check_persist(const rendezvous::JobRecord& record) {
  const auto [known, is_new] = server_.last.try_emplace(record.run, record);
  if (!is_new) {
    const rendezvous::JobRecord& before = known->second;
    if (record.generation < before.generation) fail("R4: the generation fell");
    if (record.last_incarnation < before.last_incarnation) fail("R4: the incarnation fell");
    if (record.restarts_used < before.restarts_used) fail("R4: restarts_used fell");
    if (record.epoch < before.epoch) fail("R4: the epoch fell");
    known->second = record;
  }
  const JobPolicy& policy = options_.policy;
  if (!policy.max_restarts_window && record.restarts_used > policy.max_restarts) {
    fail("G3: the budget is exceeded");
  }
  if (record.outcome) check_outcome(record.run, *record.outcome, "the journal");
}

// It changes by an order, and begins as the agents bring it.
void Checks::check_range(const rendezvous::Event& event, const rendezvous::JobRecord& record) {
  const rendezvous::NodeRange range{record.spec.min_nodes, record.spec.max_nodes};
  const rendezvous::NodeRange began{options_.min_nodes, options_.max_nodes};
  if (record.asked != began) fail("the job forgot how it was asked for");
  const auto* asked = std::get_if<rendezvous::OperatorAsked>(&event);
  const auto* scale = asked == nullptr ? nullptr : std::get_if<rendezvous::ScaleJob>(&asked->order);
  const bool ordered =
      scale != nullptr && range == rendezvous::NodeRange{scale->min_nodes, scale->max_nodes};
  auto known = ranges_.find(record.run);
  if (known == ranges_.end()) {
    known = ranges_.emplace(record.run, began).first;
    for (const RunId& alias : record.aliases) {
      const auto ours = ranges_.find(alias);
      if (ours != ranges_.end()) known->second = ours->second;
    }
  }
  if (range == known->second) return;
  if (!ordered) fail("the job was scaled without an order");
  ++tally["scaled"];
  known->second = range;
}

void Checks::check_outcome(const RunId& run, const Outcome& outcome, const char* where) {
  // A server without a journal that dies after its verdict may be followed by one that has to
  // judge again: an outcome is one within a server's life.
  const auto [known, is_new] = outcomes_.try_emplace({life_of(server_life_), run}, outcome);
  if (is_new) ++tally[std::string("outcome ") + to_word(outcome.kind)];
  if (!is_new && !(known->second == outcome)) {
    fail(std::string("R5: run ") + run + " has two outcomes, " + to_word(known->second.kind) +
         " and in " + where + " " + to_word(outcome.kind));
  }
}

// Workers that fail over others that were told to stop are no failure of the generation. The server
// cannot know it where ages are not exact, where it has forgotten the stop (its end voids them), or
// where a node left and its stream took that along.
void Checks::check_failed_generation(const rendezvous::Emit& emit,
                                     const event::GenerationFailed& failed) {
  const FailureKind kind = failed.first_cause.kind;
  const bool of_worker = kind != FailureKind::kNodeLost && kind != FailureKind::kSpawn;
  const Generation generation = emit.event.generation.value_or(kNoGeneration);
  const auto began = began_.find({emit.run, generation});
  const bool exact =
      began != began_.end() && inexact_until_ < began->second && unread_leaves_.empty();
  if (exact) ++tally["generations whose first cause is exact"];
  if (exact && of_worker && !disturbed_.contains({emit.run, generation})) {
    fail("F5: generation " + std::to_string(generation) + " is said to have failed on " +
         failed.first_cause.node + ", where ranks only followed others that were told to stop");
  }
}

// At most so many in a run, or in any window of it by the server's clock, which is ours unless it
// leaps or the time of day does.
void Checks::check_charge(const RunId& run, const event::RestartScheduled& restart) {
  const JobPolicy& policy = options_.policy;
  if (server_.charged_run != run) {
    server_.charged_run = run;
    server_.charged.clear();
  }
  if (restart.charged) server_.charged.push_back(clock_.now());
  std::size_t counted = server_.charged.size();
  if (policy.max_restarts_window) {
    const Duration window = *policy.max_restarts_window - 1ms;  // less what rounding takes
    counted = static_cast<std::size_t>(
        std::count_if(server_.charged.begin(), server_.charged.end(),
                      [&](Instant at) { return clock_.now() - at < window; }));
    if (fence_void_ || stepped_back_) return;
    if (restart.charged && restart.restarts_used > policy.max_restarts) {
      ++tally["restarts beyond the budget, outside its window"];
    }
  } else if (restart.restarts_used > restart.max_restarts) {
    fail("G3: the budget is exceeded");
  }
  if (counted > policy.max_restarts) fail("G3: more charged than allowed");
}

void Checks::check_emit(const rendezvous::Emit& emit) {
  if (std::holds_alternative<event::NodeJoined>(emit.event.body)) {
    confined_.erase(emit.event.node.value_or(""));
    drained_.erase({emit.run, emit.event.node.value_or("")});
  }
  if (const auto* left = std::get_if<event::NodeLeft>(&emit.event.body)) {
    if (left->why == event::NodeLeft::Why::kQuarantined) {
      confined_.insert(emit.event.node.value_or(""));
      ++tally["nodes quarantined"];
      return;
    }
    if (left->why == event::NodeLeft::Why::kDrained) {
      drained_.emplace(emit.run, emit.event.node.value_or(""));
      ++tally["nodes drained"];
    }
    if (left->why != event::NodeLeft::Why::kLeave) {
      written_off_[emit.event.node.value_or("")] = clock_.now();
    } else {
      left_.insert(emit.event.node.value_or(""));
    }
    ++tally[left->why == event::NodeLeft::Why::kLeave ? "nodes left" : "nodes lost"];
  } else if (std::holds_alternative<event::ServerGoing>(emit.event.body)) {
    goodbyes_.insert(emit.run);
  } else if (const auto* restart = std::get_if<event::RestartScheduled>(&emit.event.body)) {
    check_charge(emit.run, *restart);
    ++tally[restart->charged ? "restarts charged" : "restarts free"];
  } else if (const auto* failed = std::get_if<event::GenerationFailed>(&emit.event.body)) {
    check_failed_generation(emit, *failed);
  } else if (std::holds_alternative<event::Recovered>(emit.event.body)) {
    ++tally["recoveries"];
  } else if (const auto* finished = std::get_if<event::JobFinished>(&emit.event.body)) {
    check_outcome(emit.run, finished->outcome, "job_finished");
    const bool same = recovered_.contains(emit.run);
    if (same && finished->outcome.kind == OutcomeKind::kSucceeded) {
      ++tally["generations that outlived a server"];
    }
  } else if (std::holds_alternative<event::StateLost>(emit.event.body)) {
    ++tally["states adopted"];
    // A run is forgotten once its agents are certainly gone, unless its server's clock leapt.
    const bool forgot = forgotten_.contains(emit.run) && fence_void_;
    if (options_.journaled && !ever_lost_tail_ && !forgot)
      fail("a server with a journal adopted a run from its agents");
  } else if (std::holds_alternative<event::ServerRecovered>(emit.event.body)) {
    ++tally["runs recovered"];
    recovered_[emit.run] = emit.event.generation.value_or(kNoGeneration);
  } else if (std::holds_alternative<event::GenerationFormed>(emit.event.body)) {
    recovered_.erase(emit.run);
  }
}

}  // namespace muster::sim
