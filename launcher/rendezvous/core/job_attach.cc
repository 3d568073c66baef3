// SPDX-License-Identifier: Apache-2.0
//
// Joining, coming back, and a server that knows less than its agents.
#include <algorithm>

#include "launcher/rendezvous/core/address.h"
#include "launcher/rendezvous/core/admission.h"
#include "launcher/rendezvous/core/job.h"

namespace muster::rendezvous {

std::string Job::by_holder() const {
  const std::string& holder = shared_.options.holder;
  return "job \"" + spec_.job + "\"" + (holder.empty() ? "" : " (" + holder + ")");
}

std::optional<JoinRefused> Job::refused(const Join& join) const {
  using Why = JoinRefused::Why;
  if (std::optional<JoinRefused> why =
          refused_by_job(spec_, asked_, join, shared_.options.holder)) {
    return why;
  }
  const NodeFacts& node = join.node;
  const auto same = members_.find(node.name);
  const bool waits = same != members_.end() && same->second.leaving;
  if (same != members_.end() && !waits) {
    const Member& holder = same->second;
    if (std::optional<JoinRefused> why = refused_by_holder(node, holder)) return why;
  } else if (!waits && members_.size() >= shared_.options.limits.members) {
    return refusal(Why::kFull, by_holder() + " has " + std::to_string(members_.size()) +
                                   " nodes, and this server takes no more");
  }
  std::uint64_t workers = node.slots;
  for (const auto& [name, member] : members_) {
    if (name == node.name || member.leaving) continue;
    workers += member.facts.slots;
    if (!node.node_rank || member.facts.node_rank != node.node_rank) continue;
    if (std::optional<JoinRefused> why = refused_by_holder(node, member)) return why;
  }
  if (workers > shared_.options.limits.ranks) {
    return refusal(Why::kFull, by_holder() + " would have " + std::to_string(workers) +
                                   " workers, and this server takes no more than " +
                                   std::to_string(shared_.options.limits.ranks));
  }
  if (!waits) return std::nullopt;
  // Its workers have their time to save; who comes in its name tries again until it is gone.
  JoinRefused not_yet =
      refusal(Why::kNotYet, "node \"" + node.name +
                                "\" is still leaving the job; a new agent of that name comes in "
                                "when it is gone");
  not_yet.exit_code = 75;
  return not_yet;
}

// `holder` has the name or the node rank that `node` comes with. One whose stream is broken holds
// nothing, nor one that its scheduler has replaced: should its agent come back, it is the older
// one.
std::optional<JoinRefused> Job::refused_by_holder(const NodeFacts& node,
                                                  const Member& holder) const {
  using Why = JoinRefused::Why;
  const std::string at =
      "host " + holder.facts.host + ", pid " + std::to_string(holder.facts.agent_pid);
  if (!holder.connected() || is_replaced_by(holder.facts, node)) return std::nullopt;
  if (node.name == holder.facts.name) {
    return refusal(Why::kDuplicateName, "node \"" + node.name + "\" has already joined " +
                                            by_holder() + " from " + at +
                                            "; give each agent its own --node-name or --node-rank");
  }
  return refusal(Why::kDuplicateNodeRank, "node rank " + std::to_string(*node.node_rank) + " of " +
                                              by_holder() + " is held by node \"" +
                                              holder.facts.name + "\" on " + at +
                                              "; each agent needs its own --node-rank");
}

// One whose stream is broken holds no place: who replaces a node often comes before its loss is
// certain.
std::optional<JoinRefused> Job::refused_as_spare(const NodeFacts& node) const {
  if (!spec_.policy.max_spares) return std::nullopt;
  const std::uint64_t spares = *spec_.policy.max_spares;
  const auto here = std::count_if(members_.begin(), members_.end(), [&](const auto& entry) {
    const Member& member = entry.second;
    const bool makes_way =
        entry.first == node.name || (node.node_rank && member.facts.node_rank == node.node_rank);
    return !makes_way && member.connected() && !member.leaving && !confined(entry.first);
  });
  if (static_cast<std::uint64_t>(here) < spec_.max_nodes + spares) return std::nullopt;
  const std::uint32_t most = spec_.max_nodes;
  std::string has = most == 1 ? "its one node" : "all of its " + std::to_string(most) + " nodes";
  if (spares == 0) {
    has += " and takes no spares (--spares none)";
  } else {
    const std::string count = std::to_string(spares);
    has += (spares == 1 ? " and its one spare" : " and its " + count + " spares") +
           std::string(" (--spares ") + count + ")";
  }
  return refusal(JoinRefused::Why::kFull,
                 by_holder() + " has " + has + "; node \"" + node.name + "\" is one too many");
}

// What the agent told before may be new to us all the same: a charge, a whole run.
void Job::refuse(SessionId session, const Join& join, JoinRefused why) {
  stirred_ = true;
  send_to(session, join.node.name, 0, kNoGeneration, std::move(why));
  act(CloseSession{session});
}

void Job::evict(SessionId session, const NodeName& node, Incarnation incarnation,
                const std::string& reason) {
  send_to(session, node, incarnation, generation_, Evicted{reason});
  act(CloseSession{session});
}

Role Job::role_of_newcomer() const {
  std::size_t staying = 0;
  for (const auto& [name, member] : members_)
    staying += member.leaving || confined(name) ? 0U : 1U;
  return staying < spec_.max_nodes ? Role::kMember : Role::kSpare;
}

// A member that was not there; the caller has refused what must be refused.
Member& Job::admit(SessionId session, const std::string& peer, const Join& join,
                   Incarnation incarnation) {
  const Role role = confined(join.node.name) ? Role::kSpare : role_of_newcomer();
  Member& member = members_[join.node.name];
  member.facts = join.node;
  member.observed_addr = peer;
  member.incarnation = incarnation;
  member.role = role;
  member.session = session;
  member.heard_at = now_;
  member.past = past_of(join.node);
  take_over(join.node);
  shared_.sessions.attach(session, {this, join.node.name, incarnation});
  last_incarnation_ = std::max(last_incarnation_, incarnation);
  ++picture_version_;
  last_leave_signal_ = 0;
  touch(join.node.name);
  watch(member);
  send(member, JoinAccepted{shared_.options.server_instance, peer, role, spec_.policy});
  // The run began before it had members: each hears of it when it first comes in.
  const bool knows = join.reattach && is_run(join.reattach->run);
  if (!knows) send(member, JobEventNotice{started_event(), 0s});
  publish_event(node_event(join.node.name,
                           event::NodeJoined{join.node.host, own_address(member), join.node.slots,
                                             role == Role::kSpare, incarnation}));
  // A generation not committed yet can take one more for the price of another Prepare.
  if (phase_ == Phase::kPreparing && round_->ranks.size() < spec_.max_nodes) reopen_round();
  return member;
}

std::optional<NodeName> Job::holder_of(std::optional<std::uint32_t> node_rank) const {
  if (!node_rank) return std::nullopt;
  for (const auto& [name, member] : members_) {
    if (!member.leaving && member.facts.node_rank == node_rank) return name;
  }
  return std::nullopt;
}

void Job::join(SessionId session, const std::string& peer, const Join& join, Instant now) {
  begin(now);
  if (server_left_) {
    JoinRefused leaving = refusal(JoinRefused::Why::kNotAllowed, "the server is leaving");
    leaving.exit_code = 76;
    refuse(session, join, std::move(leaving));
    return;
  }
  std::optional<JoinRefused> why = refused_as_over(join.node);
  if (!why) why = refused(join);
  if (!why) why = refused_as_spare(join.node);
  if (why) {
    refuse(session, join, std::move(*why));
    return;
  }
  make_way(join.node);
  admit(session, peer, join, last_incarnation_ + 1);
  end();
}

// Those whose name or node rank `newer` takes are lost.
void Job::make_way(const NodeFacts& newer) {
  const auto lose_to = [&](const NodeName& node, std::string why) {
    const NodeFacts& holder = members_.at(node).facts;
    if (is_replaced_by(holder, newer)) {
      why = "its scheduler replaced it: " + holder.scheduler_attempt + " by " +
            newer.scheduler_attempt;
    }
    lose(node, why);
  };
  if (find(newer.name) != nullptr) lose_to(newer.name, "its agent was replaced by a new one");
  if (const std::optional<NodeName> holder = holder_of(newer.node_rank)) {
    lose_to(*holder, "node " + newer.name + " has taken its node rank");
  }
}

void Job::reattach(SessionId session, const std::string& peer, const Join& join, Instant now) {
  const Reattach& known = *join.reattach;
  if (finished()) {
    begin(now);
    answer_late(session, join);
    return;
  }
  if (server_left_) return this->join(session, peer, join, now);
  begin(now);
  const bool ours = is_run(known.run);
  Member* member = find(join.node.name);
  if (ours && drained_.contains({join.node.name, known.incarnation})) {
    const bool here = member != nullptr && member->incarnation == known.incarnation;
    if (!here || may_go(*member)) {
      dismiss(session, join.node.name, known.incarnation);
      if (here) remove(join.node.name);
      return end();
    }
  }
  const bool is_member = ours && member != nullptr && member->incarnation == known.incarnation;
  if (known.leaving && !known.workers_running && !is_member) {
    // All that it wants is to say that it leaves. Nothing here is to change for that.
    evict(session, join.node.name, known.incarnation, "it leaves, and is not in " + by_holder());
    return end();
  }
  // Another server's run may take over only while agents can have outlived that server.
  const bool adopts = knows_more(join.node.name, known) && (ours || within_return_window());
  if (adopts && !refused_by_job(spec_, asked_, join, shared_.options.holder)) adopt(known);
  if (is_run(known.run) && known.restarts_used > budget_.used()) {
    // Of two agents of a lost server the later one may know of a charge that the first missed.
    budget_.adopt(known.restarts_used, now_);
  }
  if (member != nullptr && member->incarnation == known.incarnation && is_run(known.run)) {
    // What this server lost was a generation in which the node began to work.
    const bool missed = state_lost_ && known.workers_running && known.generation > member->work;
    if (missed) found_working(*member, known.generation);
    if (known.workers_running && !working_.contains(join.node.name)) {
      // By all it ever said nothing runs there. It cannot be trusted with a rank.
      fence_off(now_);
      lose(join.node.name, "workers run there of which this server does not know");
      evict(session, join.node.name, known.incarnation, "workers of no current generation");
    } else {
      resume(*member, session, peer, join);
    }
  } else if (member != nullptr && !is_older(*member, known)) {
    evict(session, join.node.name, known.incarnation,
          "a newer agent of node \"" + join.node.name + "\" belongs to " + by_holder());
  } else if (is_run(known.run) && state_lost_ && within_return_window()) {
    return_to_us(session, peer, join);
  } else if (const auto holder = ours ? holder_of(join.node.node_rank) : std::nullopt; holder) {
    evict(session, join.node.name, known.incarnation,
          "node " + *holder + " has taken its node rank");
  } else if (auto over = ours ? refused_as_over(join.node) : std::nullopt; over) {
    evict(session, join.node.name, known.incarnation, over->text);
  } else if (!known.workers_running && (ours || known.generation == kNoGeneration)) {
    // Nothing runs there that would have to be fenced off: it starts anew.
    return this->join(session, peer, join, now);
  } else {
    evict(session, join.node.name, known.incarnation,
          ours ? "this node was declared lost"
               : by_holder() + " is in run " + run_ + ", not " + known.run);
  }
  tell_state_lost(join.node.name);
  end();
}

// The same agent over a new stream.
void Job::resume(Member& member, SessionId session, const std::string& peer, const Join& join) {
  if (member.session && *member.session != session) {
    shared_.sessions.detach(*member.session);
    act(CloseSession{*member.session});
  }
  member.back_at = now_;
  member.session = session;
  member.observed_addr = peer;
  member.facts.dialed_addr = join.node.dialed_addr;
  touch(member.facts.name);
  member.heard_at = now_;
  member.held_until = Instant{};
  shared_.sessions.attach(session, {this, member.facts.name, member.incarnation});
  watch(member);
  send(member, JoinAccepted{shared_.options.server_instance, peer, member.role, spec_.policy});
  if (recovered_ && !member.told_recovered) {
    member.told_recovered = true;
    send(member, JobEventNotice{job_event(event::ServerRecovered{*recovered_})});
  }
  if (member.leaving) {
    if (stop_ && working_.contains(join.node.name)) order_stop(member);
    return;
  }
  if (const std::optional<Waiting> waiting = picture()) say_waiting_to(member, *waiting);
  resend(member, *join.reattach);
}

// What may have been lost with the old stream. Agents do the same for their reports.
void Job::resend(Member& member, const Reattach& known) {
  const NodeName& name = member.facts.name;
  if (phase_ == Phase::kPreparing && round_->unanswered.contains(name)) {
    for (const MemberRanks& ranks : round_->ranks) {
      if (ranks.node != name) continue;
      send(member, round_->generation, Prepare{round_->attempt, assignment_for(ranks)});
    }
    return;
  }
  if (!working_.contains(name)) return;
  const bool runs = phase_ == Phase::kStarting || phase_ == Phase::kRunning;
  if (!works_in_life(member) || !runs) {
    if (stop_) order_stop(member);
  } else if (known.generation < member.work) {
    send(member, member.work, Commit{committed_attempt_, life_->master_port});
  } else if (life_->running_at) {
    send(member, JobEventNotice{running_event(), now_ - *life_->running_at});
  }
  if (!life_ || life_->ended || known.generation != life_->generation) return;
  const MemberRanks* own = ranks_of(name);
  if (own == nullptr) return;
  touch(name);
  for (const std::uint32_t rank : known.ranks_done) {
    if (rank < own->first_rank || rank - own->first_rank >= own->count) continue;
    life_->exited.insert(rank);
    life_->done.insert(rank);
  }
}

// Of two at one place the newer one holds it, whoever's stream is broken: one that joined this
// server, else the one that the lost server took in later.
bool Job::is_older(const Member& holder, const Reattach& known) const {
  const bool both_of_lost = state_lost_ && is_run(known.run) && within_return_window();
  return both_of_lost && holder.returned && holder.incarnation < known.incarnation;
}

// After adopting: an agent whose incarnation the lost server issued.
void Job::return_to_us(SessionId session, const std::string& peer, const Join& join) {
  const Reattach& known = *join.reattach;
  std::vector<NodeName> older;
  for (const auto& [name, holder] : members_) {
    const bool same_rank = join.node.node_rank && holder.facts.node_rank == join.node.node_rank;
    if (name != join.node.name && !same_rank) continue;
    if (!is_older(holder, known)) {
      evict(session, join.node.name, known.incarnation,
            "node " + name + " has taken its node rank");
      return;
    }
    older.push_back(name);
  }
  for (const NodeName& name : older)
    lose(name, "a newer agent of its place is back");
  if (std::optional<JoinRefused> why = refused(join)) {
    using Why = JoinRefused::Why;
    if (why->why == Why::kDuplicateName || why->why == Why::kDuplicateNodeRank) {
      evict(session, join.node.name, known.incarnation, why->text);
    } else {
      refuse(session, join, std::move(*why));
    }
    return;
  }
  make_way(join.node);
  Member& member = admit(session, peer, join, known.incarnation);
  member.returned = true;
  returned_.insert(join.node.name);
  if (!known.workers_running || known.generation == kNoGeneration) return;
  found_working(member, known.generation);
  order_stop(member);
}

// Workers of a generation of the lost server run there: they are to stop.
void Job::found_working(Member& member, Generation generation) {
  member.work = generation;
  working_.insert(member.facts.name);
  touch(member.facts.name);
  if (!stop_ || (phase_ != Phase::kStopping && phase_ != Phase::kRecovering)) {
    stop_ = new_stop(StopWhy::kStateLost, false, "the server lost its state");
  }
}

void Job::answer_late(SessionId session, const Join& join) {
  const Incarnation incarnation = join.reattach->incarnation;
  Member* member = find(join.node.name);
  if (member != nullptr && member->incarnation == incarnation) {
    if (member->session && *member->session != session) {
      shared_.sessions.detach(*member->session);
      act(CloseSession{*member->session});
    }
    member->session = session;
    member->heard_at = now_;
  }
  if (confined(join.node.name)) {
    if (member != nullptr) member->session.reset();
    evict(session, join.node.name, incarnation, ended_in_quarantine());
    return;
  }
  shared_.sessions.attach(session, {this, join.node.name, incarnation});
  send_to(session, join.node.name, incarnation, generation_, OutcomeNotice{*outcome_});
}

bool Job::within_return_window() const {
  // Later than this, agents of a lost server have killed their workers and ended.
  return now_ <= shared_.started_at + spec_.policy.server_grace;
}

bool Job::knows_more(const NodeName& node, const Reattach& known) const {
  if (is_run(known.run)) {
    // We gave out the very number that still runs there: it came back after we had formed.
    const bool collides = state_lost_ && known.workers_running && life_ && !life_->ended &&
                          known.generation == life_->generation &&
                          !life_->group_ranks.contains(node);
    return known.generation > generation_ || known.epoch > epoch_ || collides;
  }
  // Another run: a fresh one of ours gives way to one that got at least as far.
  return !state_lost_ && known.generation != kNoGeneration && known.generation >= generation_;
}

// Never lowers a number. Everything that runs is stopped, and a new generation is formed.
void Job::adopt(const Reattach& known) {
  if (run_ != known.run) {
    // An agent changes its run only when it is accepted: those of ours come in again.
    for (auto& [name, member] : members_) {
      if (!member.session) continue;
      act(CloseSession{*member.session});
      shared_.sessions.detach(*member.session);
      member.session.reset();
      member.stream_lost_at = now_;
    }
    if (!run_.empty()) {
      aliases_.insert(run_);
      act(Forget{spec_.job, run_});
    }
    run_ = known.run;
    touch_all();
  }
  generation_ = std::max(generation_, known.generation);
  epoch_ = std::max(epoch_, known.epoch + 1);
  last_incarnation_ = std::max(last_incarnation_, known.incarnation);
  budget_.adopt(known.restarts_used, now_);
  state_lost_ = true;
  // What ran under the lost server, and where, nobody can tell; its leases were granted before.
  fence_off(shared_.started_at);
  if (phase_ == Phase::kRecovering) return;
  round_.reset();
  recovery_.reset();
  if (life_ && !life_->ended) end_life(false);
  recovering_until_ = now_ + spec_.policy.recovery_window;
  returned_.clear();
  hold_losses(recovering_until_);
  order_stops(StopWhy::kStateLost, false, "the server lost its state");
  phase_ = Phase::kRecovering;
  state_lost_untold_ = true;
  adopted_ = true;
  for (auto& [name, member] : members_)
    member.told_state_lost = false;
}

// Once the agent that brought the news is attached; the others when they come.
void Job::tell_state_lost(const NodeName& newcomer) {
  if (!adopted_) return;
  const JobEvent event = job_event(
      event::StateLost{"this server did not know run " + run_ + " and adopts it from its agents"});
  const auto tell = [&](Member& member) {
    if (!member.connected() || std::exchange(member.told_state_lost, true)) return;
    send(member, JobEventNotice{event, 0s});
  };
  if (state_lost_untold_) {
    state_lost_untold_ = false;
    for (auto& [name, member] : members_)
      tell(member);
    emit(event);
  } else if (Member* member = find(newcomer)) {
    tell(*member);
  }
}

}  // namespace muster::rendezvous
