// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/rendezvous_core/world.h"

#include <algorithm>
#include <limits>

namespace muster::rendezvous::test {

// ---------------------------------------------------------------- the judge

void Judge::check(bool holds, const std::string& what) {
  if (!holds && broken.size() < 10) broken.push_back(what);
}

void Judge::said(const AgentSaid& event) {
  open_.insert(event.session);
  const auto* confirmed = std::get_if<StopConfirmed>(&event.message.body);
  const auto running = running_.find(event.message.envelope.node);
  if (confirmed != nullptr && running != running_.end() &&
      running->second == event.message.envelope.generation) {
    running_.erase(running);
  }
}

// What only the lost server knew binds nobody any more; what its agents bring back does.
void Judge::server_lost_state() {
  open_.clear();
  runs_.clear();
  prepares_.clear();
  running_.clear();
  incarnations_.clear();
  open_stores_.clear();
  persisted_ = false;
}

void Judge::came_back(const Node& node) {
  const Reattach& known = node.reattach;
  Run& run = runs_[known.run];
  if (!run.outcome) run.committed = std::max(run.committed, known.generation);
  if (!node.live.empty()) running_[node.facts.name] = known.generation;
}

void Judge::acted(const Event& event, const std::vector<Action>& actions) {
  const auto* said = std::get_if<AgentSaid>(&event);
  const bool is_join = said != nullptr && std::holds_alternative<Join>(said->message.body);
  joining_ = is_join ? said->session : 0;
  replies_ = 0;
  for (const Action& action : actions) {
    if (const auto* send = std::get_if<Send>(&action)) sent(*send);
    if (const auto* emit = std::get_if<Emit>(&action)) emitted(*emit);
    if (const auto* persist = std::get_if<Persist>(&action)) persisted(*persist);
    if (const auto* close = std::get_if<CloseSession>(&action)) open_.erase(close->session);
    if (const auto* open = std::get_if<OpenStore>(&action)) {
      check(open_stores_.insert(open->generation).second, "a store was opened twice");
      check(open_stores_.size() == 1, "two stores are open");
    }
    if (const auto* shut = std::get_if<CloseStore>(&action)) {
      check(open_stores_.erase(shut->generation) == 1, "a store was closed that was not open");
    }
    if (const auto* over = std::get_if<JobOver>(&action)) {
      Run& run = runs_[over->run];
      check(!run.over, "JobOver twice");
      run.over = true;
      check(run.outcome == over->outcome, "JobOver with another outcome");
    }
  }
  if (is_join) check(replies_ == 1, std::to_string(replies_) + " replies to a Join");
}

void Judge::sent(const Send& send) {
  check(open_.contains(send.session), "sent to a stream that is gone");
  const Envelope& envelope = send.message.envelope;
  const ServerBody& body = send.message.body;
  const bool accepted = std::holds_alternative<JoinAccepted>(body);
  const bool replies = accepted || std::holds_alternative<JoinRefused>(body) ||
                       std::holds_alternative<Evicted>(body) ||
                       (std::holds_alternative<OutcomeNotice>(body) && replies_ == 0);
  if (send.session == joining_ && replies) ++replies_;
  check(send.session == joining_ || !accepted, "accepted without a Join");
  if (accepted) {
    Incarnation& last = incarnations_[envelope.node];
    check(envelope.incarnation >= last, "an incarnation fell");
    last = envelope.incarnation;
  }
  if (const auto* prepare = std::get_if<Prepare>(&body)) prepared(send, *prepare);
  if (std::holds_alternative<Commit>(body)) committed(send);
  if (const auto* notice = std::get_if<OutcomeNotice>(&body)) {
    Run& run = runs_[envelope.run];
    check(!run.outcome || *run.outcome == notice->outcome, "two outcomes of one run");
    run.outcome = notice->outcome;
  }
}

void Judge::prepared(const Send& send, const Prepare& prepare) {
  const Assignment& assignment = prepare.assignment;
  std::uint32_t next_rank = 0;
  std::uint32_t next_group = 0;
  std::set<NodeName> nodes;
  for (const MemberRanks& member : assignment.members) {
    check(member.first_rank == next_rank && member.count > 0, "ranks are not contiguous");
    check(member.group_rank == next_group++, "group ranks are not contiguous");
    check(nodes.insert(member.node).second, "a node twice in a generation");
    next_rank += member.count;
  }
  check(next_rank == assignment.world_size, "the world has another size than its ranks");
  check(assignment.group_rank < assignment.members.size() &&
            assignment.members[assignment.group_rank].node == send.message.envelope.node,
        "a Prepare names another node's place");
  check(assignment.restarts_used <= most_restarts_, "the budget is exceeded");
  const auto [at, is_new] =
      prepares_.emplace(std::pair(assignment.generation, prepare.attempt), prepare);
  check(is_new || (at->second.assignment.members == assignment.members &&
                   at->second.assignment.master_addr == assignment.master_addr),
        "agents were told different assignments of one attempt");
}

void Judge::committed(const Send& send) {
  const Envelope& envelope = send.message.envelope;
  Run& run = runs_[envelope.run];
  check(envelope.generation >= run.committed, "an older generation was committed");
  check(persisted_ && record_.generation == envelope.generation && record_.run == envelope.run,
        "committed before it was persisted");
  for (const auto& [node, generation] : running_) {
    check(generation == envelope.generation,
          "committed while workers of an older generation may run on " + node);
  }
  if (envelope.generation > run.committed) ++commits;
  run.committed = envelope.generation;
  running_[envelope.node] = envelope.generation;
}

void Judge::emitted(const Emit& emit) {
  const JobEvent& event = emit.event;
  if (const auto* left = std::get_if<event::NodeLeft>(&event.body)) {
    if (left->why == event::NodeLeft::Why::kLost) running_.erase(*event.node);
  }
  if (const auto* restart = std::get_if<event::RestartScheduled>(&event.body)) {
    check(restart->restarts_used <= most_restarts_, "the budget is exceeded");
    check(restart->restarts_used == record_.restarts_used, "a charge was not persisted first");
  }
  if (std::holds_alternative<event::StateLost>(event.body)) ++adoptions;
  if (const auto* finished = std::get_if<event::JobFinished>(&event.body)) {
    ++outcomes;
    Run& run = runs_[emit.run];
    check(!run.outcome || *run.outcome == finished->outcome, "two outcomes of one run");
    check(record_.outcome == finished->outcome, "an outcome was not persisted first");
    run.outcome = finished->outcome;
    running_.clear();  // told to all; their agents end
  }
}

void Judge::persisted(const Persist& persist) {
  const JobRecord& record = persist.record;
  const JobPolicy& policy = record.spec.policy;
  most_restarts_ =
      policy.max_restarts_window ? std::numeric_limits<std::uint32_t>::max() : policy.max_restarts;
  if (persisted_ && record_.run == record.run) {
    check(record.generation >= record_.generation, "a generation number fell");
    check(record.last_incarnation >= record_.last_incarnation, "an incarnation fell");
    check(record.restarts_used >= record_.restarts_used, "restarts_used fell");
    check(record.epoch >= record_.epoch, "the epoch fell");
    check(!record_.outcome || record_.outcome == record.outcome, "the outcome changed");
  } else {
    prepares_.clear();
    incarnations_.clear();
  }
  record_ = record;
  persisted_ = true;
}

// ---------------------------------------------------------------- the world

namespace {

Options options() {
  Options options;
  options.server_instance = "server";
  options.unix_us_at_origin = 1768642200000000;
  return options;
}

}  // namespace

World::World(std::uint64_t seed) : rng_(seed), machine_(options(), Rng(seed + 1)) {
  const std::size_t count = 1 + rng_.below(6);
  spec_.job = "j";
  spec_.program = "train";
  spec_.max_nodes = static_cast<std::uint32_t>(1 + rng_.below(count));
  spec_.min_nodes = static_cast<std::uint32_t>(1 + rng_.below(spec_.max_nodes));
  spec_.policy.max_restarts = static_cast<std::uint32_t>(rng_.below(6));
  spec_.policy.max_node_losses = static_cast<std::uint32_t>(rng_.below(4));
  spec_.policy.last_call = std::chrono::seconds(rng_.below(20));
  spec_.policy.join_timeout = std::chrono::seconds(20 + rng_.below(100));
  if (chance(20)) spec_.policy.max_restarts_window = 60s;
  spec_.policy.grow = static_cast<Grow>(rng_.below(3));
  spec_.policy.grow_interval = std::chrono::seconds(rng_.below(40));
  if (chance(30)) spec_.policy.max_spares = static_cast<std::uint32_t>(rng_.below(2));
  if (chance(20)) spec_.policy.max_no_progress = static_cast<std::uint32_t>(1 + rng_.below(3));
  if (chance(30)) {
    spec_.policy.quarantine = {static_cast<std::uint32_t>(1 + rng_.below(2)), 60s,
                               std::chrono::seconds(1 + rng_.below(20))};
  }
  if (chance(15)) spec_.policy.fence = Fence::kStrict;
  const bool explicit_ranks = chance(30);
  for (std::size_t i = 0; i < count; ++i) {
    Node node;
    node.facts.name = "n" + std::to_string(i);
    node.facts.host = node.facts.name;
    node.facts.boot_id = "boot" + std::to_string(i);
    node.facts.slots = static_cast<std::uint32_t>(1 + rng_.below(3));
    if (explicit_ranks) node.facts.node_rank = static_cast<std::uint32_t>(i);
    nodes_.push_back(std::move(node));
  }
}

void World::step(const Event& event) {
  if (const auto* said = std::get_if<AgentSaid>(&event)) judge_.said(*said);
  const std::vector<Action> actions = machine_.step(event, now_);
  judge_.acted(event, actions);
  for (const Action& action : actions) {
    trace_ = Rng::mix(trace_ + action.index());
    if (const auto* send = std::get_if<Send>(&action)) hear(*send);
    if (const auto* shut = std::get_if<CloseSession>(&action)) close(shut->session);
    if (std::holds_alternative<JobOver>(action)) over_ = true;
  }
}

void World::close(SessionId session) {
  for (Node& node : nodes_) {
    if (node.session == session) node.session = 0;
  }
}

void World::kill_agent(Node& node) {
  const SessionId session = node.session;
  judge_.stream_over(session);
  node.session = 0;
  node.alive = false;
  node.silent = false;
  node.leaving = false;
  node.live.clear();
  node.prepare.reset();
  node.reattach = Reattach{};
  node.stop_ordered = false;
  node.outcome.reset();
  if (session != 0) step(StreamLost{session});
  judge_.stopped(node.facts.name);
}

void World::hear(const Send& send) {
  trace_ = Rng::mix(trace_ ^ hash_text(send.message.envelope.node, send.message.body.index()));
  const auto found = std::find_if(nodes_.begin(), nodes_.end(),
                                  [&](const Node& node) { return node.session == send.session; });
  if (found == nodes_.end()) return;
  Node& node = *found;
  const Envelope& envelope = send.message.envelope;
  const ServerBody& body = send.message.body;
  if (std::holds_alternative<Stale>(body)) return;
  const bool attached = node.accepted_on == node.session;
  if (attached && std::holds_alternative<JoinRefused>(body)) return;  // of a second Join
  if (std::holds_alternative<JoinRefused>(body) || std::holds_alternative<Evicted>(body)) {
    node.alive = false;
    node.live.clear();
    node.reattach = Reattach{};
    judge_.stopped(node.facts.name);
    return;
  }
  if (std::holds_alternative<JoinAccepted>(body)) {
    if (!node.reattach.run.empty() && node.reattach.run != envelope.run) {
      node.live.clear();
      node.reattach = Reattach{};
    }
    node.accepted_on = node.session;
    node.reattach.run = envelope.run;
    node.reattach.incarnation = envelope.incarnation;
    if (restarted_) judge_.came_back(node);
  }
  node.known = envelope;
  node.reattach.epoch = envelope.epoch;
  if (const auto* prepare = std::get_if<Prepare>(&body)) {
    node.prepare = *prepare;
    node.prepared = envelope.generation;
  } else if (const auto* commit = std::get_if<Commit>(&body)) {
    if (!node.prepare || node.prepare->attempt != commit->attempt) return;
    const Assignment& assignment = node.prepare->assignment;
    const MemberRanks& own = assignment.members[assignment.group_rank];
    node.reattach.generation = envelope.generation;
    node.reattach.restarts_used = assignment.restarts_used;
    node.live.clear();
    node.done.clear();
    for (std::uint32_t i = 0; i < own.count; ++i)
      node.live.insert(own.first_rank + i);
    node.prepare.reset();
    node.stop_ordered = false;
  } else if (std::holds_alternative<StopOrder>(body)) {
    node.stop_ordered = true;
    node.stop_generation = envelope.generation;
  } else if (const auto* notice = std::get_if<OutcomeNotice>(&body)) {
    node.outcome = notice->outcome;
  }
}

void World::say(Node& node, AgentBody body, Generation generation) {
  Envelope envelope = node.known;
  envelope.job = spec_.job;
  envelope.node = node.facts.name;
  envelope.generation = generation;
  const std::string peer = "10.0.0." + node.facts.name.substr(1);
  step(AgentSaid{node.session, peer, {envelope, std::move(body)}});
}

void World::join(Node& node) {
  if (node.session != 0) return;
  node.session = ++last_session_;
  Join join{spec_, node.facts, std::nullopt};
  if (node.alive && node.reattach.incarnation != 0) {
    join.reattach = node.reattach;
    join.reattach->workers_running = !node.live.empty();
    join.reattach->ranks_done = node.done;
  }
  node.alive = true;
  say(node, std::move(join), kNoGeneration);
}

void World::answer(Node& node) {
  if (!node.prepare || node.session == 0) return;
  PrepareAnswer answer;
  answer.attempt = node.prepare->attempt;
  answer.accepted = true;
  if (node.prepare->assignment.group_rank == 0) answer.master_port = 20000;
  say(node, std::move(answer), node.prepared);
}

void World::worker_ends(Node& node) {
  if (node.live.empty() || node.session == 0) return;
  WorkerExited exited;
  exited.rank = *node.live.begin();
  exited.order = ++order_;
  exited.age = std::chrono::milliseconds(rng_.below(60));
  exited.torn_down = node.stop_ordered;
  if (chance(40)) {
    exited.status.value = chance(50) ? 1 : 143;
  } else if (chance(30)) {
    exited.status.kind = ExitStatus::Kind::kSignaled;
    exited.status.value = chance(50) ? 11 : 15;
  } else if (chance(5)) {
    exited.status.kind = ExitStatus::Kind::kExecFailed;
    exited.status.value = 2;
  }
  exited.secondary = chance(20);
  if (exited.status.succeeded() && !exited.torn_down) node.done.push_back(exited.rank);
  node.live.erase(exited.rank);
  say(node, std::move(exited), node.reattach.generation);
}

void World::confirm(Node& node) {
  if (!node.stop_ordered || node.session == 0) return;
  node.live.clear();
  node.stop_ordered = false;
  say(node, StopConfirmed{}, node.stop_generation);
}

// Messages that no agent sends: another life's, another generation's, out of turn.
void World::nonsense(Node& node) {
  if (node.session == 0) return;
  const auto random_generation = static_cast<Generation>(rng_.below(6)) - 1;
  const Envelope kept = node.known;
  if (chance(30)) node.known.incarnation = rng_.below(5);
  if (chance(20)) node.known.run = "another";
  const bool honest = node.known == kept;
  switch (rng_.below(7)) {
    case 0:
      say(node, PrepareAnswer{static_cast<Attempt>(rng_.below(3)), true, 0, ""}, random_generation);
      break;
    case 1:
      say(node, WorkersStarted{{{static_cast<std::uint32_t>(rng_.below(9)), 7}}, 1s},
          random_generation);
      break;
    case 2: say(node, OutcomeSeen{}, random_generation); break;
    case 3:
      say(node, ChaosFired{static_cast<std::uint32_t>(rng_.below(3)), std::nullopt},
          random_generation);
      break;
    case 4: say(node, Join{spec_, node.facts, std::nullopt}, random_generation); break;
    case 5: {
      WorkerExited exited;
      exited.rank = static_cast<std::uint32_t>(rng_.below(9));
      exited.status.value = 1;
      if (honest && random_generation == node.reattach.generation) break;  // would be believed
      say(node, std::move(exited), random_generation);
      break;
    }
    default:
      if (honest && random_generation == node.reattach.generation) break;
      say(node, StopConfirmed{}, random_generation);
  }
  if (node.session != 0) node.known = kept;
}

void World::beat() {
  for (Node& node : nodes_) {
    if (node.session != 0 && node.alive && !node.silent) {
      say(node, Heartbeat{1, {}}, node.reattach.generation);
    }
  }
}

// Time passes in heartbeats; deadlines are served on the way, as a host does.
void World::advance(Duration by) {
  const Instant end = now_ + by;
  while (now_ < end) {
    const Instant beat_at = std::min(end, now_ + 1s);
    for (int ticks = 0; machine_.next_deadline() && *machine_.next_deadline() <= beat_at; ++ticks) {
      now_ = std::max(now_, *machine_.next_deadline());
      step(Tick{});
      if (ticks > 50) {
        const_cast<std::vector<std::string>&>(judge_.broken).push_back("ticks without end");
        return;
      }
    }
    now_ = beat_at;
    beat();
  }
}

void World::behave(Node& node) {
  if (node.session == 0 && node.alive) join(node);
  answer(node);
  if (node.session != 0 && !node.live.empty() && !node.stop_ordered && !node.leaving) {
    WorkersStarted started;
    for (const std::uint32_t rank : node.live)
      started.workers.push_back({rank, 100 + rank});
    say(node, std::move(started), node.reattach.generation);
  }
  confirm(node);
  if (node.outcome && node.session != 0) {
    say(node, OutcomeSeen{}, node.reattach.generation);
    kill_agent(node);
  }
}

void World::happen() {
  Node& node = any();
  switch (rng_.below(20)) {
    case 0:
    case 1:
      if (!node.leaving) join(node);
      break;
    case 2:
      if (node.session != 0 && chance(50)) kill_agent(node);
      break;
    case 3:
      if (node.leaving) {
        kill_agent(node);              // one that said Leave does not come back
      } else if (node.session != 0) {  // the stream breaks, the agent lives
        const SessionId session = node.session;
        judge_.stream_over(session);
        node.session = 0;
        step(StreamLost{session});
      }
      break;
    case 4:
      if (chance(30)) node.silent = !node.silent;
      break;
    case 5: worker_ends(node); break;
    case 6:
      if (node.session != 0 && chance(20) && !node.leaving) {
        node.leaving = true;
        say(node, Leave{chance(80) ? 15 : 0, "told to"}, node.reattach.generation);
      }
      break;
    case 7:
      if (node.leaving) kill_agent(node);
      break;
    case 8: nonsense(node); break;
    case 9:
      if (chance(3)) step(OperatorAsked{++requests_, chance(80) ? "j" : "", "ann"});
      break;
    case 10:
      if (node.prepare && node.session != 0) {
        say(node, PrepareAnswer{node.prepare->attempt, false, 0, "no port"}, node.prepared);
      }
      break;
    case 11: advance(std::chrono::milliseconds(rng_.below(12000))); break;
    case 13:
      if (chance(8)) lose_server();
      break;
    case 12: now_ = now_ + std::chrono::milliseconds(rng_.below(2000)); break;  // a stall
    default: advance(std::chrono::milliseconds(rng_.below(400))); behave(node);
  }
}

// The server dies and comes back knowing nothing.
void World::lose_server() {
  restarted_ = true;
  machine_ = Rendezvous(options(), Rng(rng_.next()));
  judge_.server_lost_state();
  for (Node& node : nodes_) {
    node.session = 0;
    if (node.leaving) node.alive = false;
  }
}

void World::stir(int count) {
  for (int i = 0; i < count && judge_.broken.empty(); ++i)
    happen();
}

bool World::calm_down() {
  over_ = false;
  for (Node& node : nodes_) {
    node.silent = false;
    if (node.leaving) kill_agent(node);
  }
  for (int round = 0; round < 3000 && !over_ && judge_.broken.empty(); ++round) {
    for (Node& node : nodes_) {
      if (!node.alive) join(node);
      behave(node);
    }
    for (Node& node : nodes_) {
      if (node.live.empty() || node.session == 0 || node.stop_ordered || !chance(5)) continue;
      WorkerExited exited;
      exited.rank = *node.live.begin();
      exited.order = ++order_;
      node.done.push_back(exited.rank);
      node.live.erase(exited.rank);
      say(node, std::move(exited), node.reattach.generation);
    }
    advance(500ms);
  }
  return over_;
}

}  // namespace muster::rendezvous::test
