// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/server_world.h"

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "proto/wire/job.h"
#include "proto/wire/messages.h"
#include "tests/fuzz/bend.h"
#include "tests/unit/wire/random_messages.h"

namespace muster::fuzz {

using namespace rendezvous;

namespace {

constexpr std::size_t kNodes = 5;
constexpr int kMostTicks = 200;  // at one instant
constexpr Duration kLongest = std::chrono::hours(24 * 365 * 8);
constexpr std::int64_t kUnixUs = 1'800'000'000'000'000;

JobPolicy policy_from(Input& input) {
  JobPolicy policy;
  policy.max_restarts = input.below(6);
  policy.max_restarts_window = input.coin() ? std::optional(input.duration()) : std::nullopt;
  policy.max_node_losses = input.below(4);
  policy.max_no_progress = input.one_in(4) ? 2 : 0;
  if (input.coin()) policy.quarantine = {1 + input.below(3), input.duration(), input.duration()};
  policy.grow = static_cast<Grow>(input.below(3));
  policy.fence = static_cast<Fence>(input.below(2));
  if (input.one_in(3)) policy.max_spares = input.below(3);
  for (Duration* duration :
       {&policy.restart_backoff_max, &policy.grow_interval, &policy.join_timeout, &policy.last_call,
        &policy.stop_grace, &policy.heartbeat, &policy.node_timeout, &policy.reconnect_grace,
        &policy.recovery_window, &policy.server_grace}) {
    if (input.one_in(3)) *duration = input.duration();
  }
  policy.heartbeat = std::max(policy.heartbeat, Duration{1});
  policy.node_timeout = std::max(policy.node_timeout, Duration{1});
  return policy;
}

JobSpec spec_from(Input& input) {
  JobSpec spec;
  spec.job = "j";
  spec.min_nodes = 1 + input.below(3);
  spec.max_nodes = spec.min_nodes + input.below(3);
  spec.program = "train --fast";
  spec.policy = policy_from(input);
  if (input.one_in(4)) {
    spec.faults.faults.push_back(
        {0, FaultAction::kKill, {0, 3, {}}, {0, {}, {}, {}}, 9, {}, 1, 1, {}, {}, "f"});
    const FaultTarget node{{}, {}, "a", {}};
    spec.faults.faults.push_back(
        {1, FaultAction::kKillAgent, {1, {}, 1s}, node, 9, {}, 1, 1, {}, {}, "g"});
  }
  return spec;
}

Limits limits_from(Input& input) {
  Limits limits;
  limits.jobs = 1 + input.below(3);
  limits.members = 2 + input.below(6);
  limits.failures_kept = 1 + input.below(4);
  limits.outcome_kept = input.duration();
  return limits;
}

}  // namespace

ServerWorld::ServerWorld(Input& input)
    : input_(input),
      spec_(spec_from(input)),
      limits_(limits_from(input)),
      judge_(limits_),
      machine_(options(), Rng(input.byte())) {
  for (std::size_t i = 0; i < kNodes; ++i) {
    Node& node = nodes_.emplace_back();
    node.facts.name = std::string(1, static_cast<char>('a' + i));
    node.facts.host = node.facts.name;
    node.facts.boot_id = input.one_in(8) ? "" : "boot";
    node.facts.slots = input.one_in(64) ? 4096 : 1 + input.below(3);
    if (input.one_in(6)) node.facts.node_rank = input.below(4);
    node.job = spec_.job;
  }
}

Options ServerWorld::options() const {
  Options options;
  options.server_instance = "s";
  options.holder = "host h";
  options.unix_us_at_origin = kUnixUs;
  options.limits = limits_;
  return options;
}

void ServerWorld::step(const Event& event) {
  const std::vector<Action> actions = machine_.step(event, now_);
  judge_.stepped(event, actions, machine_, now_);
  for (const Action& action : actions) {
    if (const auto* send = std::get_if<Send>(&action)) hear(*send);
    if (const auto* closed = std::get_if<CloseSession>(&action)) close(closed->session);
  }
}

ServerWorld::Node* ServerWorld::holder(SessionId session) {
  const auto node = std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& candidate) {
    return session != 0 && candidate.session == session;
  });
  return node == nodes_.end() ? nullptr : &*node;
}

void ServerWorld::close(SessionId session) {
  if (Node* node = holder(session)) node->session = 0;
}

void ServerWorld::hear(const Send& send) {
  Node* node = holder(send.session);
  if (node == nullptr) return;
  const ServerMessage& message = send.message;
  if (std::holds_alternative<JoinAccepted>(message.body)) {
    node->known = message.envelope;
    node->back.run = message.envelope.run;
    node->back.incarnation = message.envelope.incarnation;
    node->back.epoch = message.envelope.epoch;
  } else if (const auto* prepare = std::get_if<Prepare>(&message.body)) {
    node->prepare = *prepare;
    node->prepared = message.envelope.generation;
  } else if (std::holds_alternative<Commit>(message.body) && node->prepare) {
    const Assignment& assignment = node->prepare->assignment;
    node->ranks = assignment.members.at(assignment.group_rank);
    node->known.generation = assignment.generation;
    node->back.generation = assignment.generation;
    node->back.workers_running = true;
    node->back.restarts_used = std::max(node->back.restarts_used, assignment.restarts_used);
    node->back.ranks_done.clear();
    node->stop.reset();
  } else if (std::holds_alternative<StopOrder>(message.body)) {
    node->stop = message.envelope.generation;
  }
}

void ServerWorld::say_raw(const Node& node, const AgentMessage& message) {
  const SessionId session = node.session != 0 ? node.session : ++last_session_;
  step(AgentSaid{session, input_.one_in(8) ? "" : "10.0.0.1", message});
}

void ServerWorld::say(Node& node, AgentBody body, Generation generation) {
  AgentMessage message{node.known, std::move(body)};
  message.envelope.job = node.job;
  message.envelope.node = node.facts.name;
  message.envelope.generation = generation;
  say_raw(node, message);
}

void ServerWorld::join(Node& node, bool again) {
  if (node.session != 0 && !input_.one_in(4)) lose(node);
  node.session = ++last_session_;
  Join join{spec_, node.facts, std::nullopt};
  join.spec.job = node.job;
  if (again) {
    join.reattach = node.back;
    join.reattach->leaving = input_.one_in(8);
  } else {
    node.back = Reattach{};
    node.known = Envelope{};
  }
  say(node, std::move(join), node.back.generation);
}

void ServerWorld::lose(Node& node) {
  const SessionId session = std::exchange(node.session, 0);
  if (session != 0) step(StreamLost{session});
}

void ServerWorld::answer(Node& node) {
  PrepareAnswer answer;
  if (node.prepare) answer.attempt = node.prepare->attempt;
  answer.accepted = !input_.one_in(6);
  answer.master_port = input_.one_in(16) ? 0 : 20001;
  if (!answer.accepted) answer.reason = "no";
  say(node, answer, node.prepared);
}

void ServerWorld::exit(Node& node) {
  WorkerExited exited;
  exited.local_rank = input_.below(std::max(node.ranks.count, 1U));
  exited.rank = node.ranks.first_rank + exited.local_rank;
  exited.pid = 100;
  using Kind = ExitStatus::Kind;
  static constexpr std::array<std::pair<Kind, int>, 8> kEnds{{{Kind::kExecFailed, 2},
                                                              {Kind::kSignaled, 15},
                                                              {Kind::kSignaled, 9},
                                                              {Kind::kSignaled, 11},
                                                              {Kind::kExited, 1},
                                                              {Kind::kExited, 0},
                                                              {Kind::kExited, 0},
                                                              {Kind::kExited, 0}}};
  std::tie(exited.status.kind, exited.status.value) = kEnds[input_.below(kEnds.size())];
  const std::uint32_t flags = input_.below(256);
  exited.torn_down = (flags & 3U) == 3;
  exited.parting = exited.torn_down && (flags & 64U) != 0;
  exited.oom = (flags & 12U) == 12;
  exited.agent_signaled = (flags & 48U) == 48;
  exited.secondary = (flags & 192U) == 192;
  exited.stops_agent = (flags & 129U) == 129;
  exited.order = ++order_;
  exited.age = input_.one_in(4) ? input_.duration() : 1ms;
  if (exited.status.succeeded()) node.back.ranks_done.push_back(exited.rank);
  say(node, exited, node.known.generation);
}

void ServerWorld::beat(Node& node) {
  Heartbeat beat{++order_, {}};
  for (std::uint32_t i = input_.below(3); i > 0; --i) {
    RankProgress progress{node.ranks.first_rank + i - 1, input_.below(8), {}, input_.duration()};
    if (input_.coin()) progress.checkpoint_step = input_.below(8);
    beat.progress.push_back(progress);
  }
  say(node, std::move(beat), node.known.generation);
}

// What an agent that keeps to the protocol may say, now or a little late.
void ServerWorld::said_by(Node& node) {
  switch (input_.below(10)) {
    case 0:
    case 1: return answer(node);
    case 2: {
      WorkersStarted started{{}, input_.duration()};
      for (std::uint32_t i = 0; i < std::min(node.ranks.count, 4U); ++i)
        started.workers.push_back({node.ranks.first_rank + i, 100 + i});
      return say(node, started, node.known.generation);
    }
    case 3:
    case 4: return exit(node);
    case 5:
      node.back.workers_running = false;
      return say(node, StopConfirmed{}, node.stop.value_or(node.known.generation));
    case 6:
      return say(node, Leave{input_.coin() ? 15 : 0, "told to", Duration{0}},
                 node.known.generation);
    case 7: return say(node, OutcomeSeen{}, node.known.generation);
    case 8: return say(node, ChaosFired{input_.below(3), std::nullopt}, node.known.generation);
    default: return beat(node);
  }
}

// Anything that the border lets in.
void ServerWorld::invent(Node& node) {
  test::RandomMessages made(input_.number(2));
  v1::AgentMessage message =
      wire::to_wire(made.agent_message(input_.below(std::variant_size_v<AgentBody>)));
  Envelope envelope = node.known;
  envelope.job = node.job;
  envelope.node = node.facts.name;
  if (input_.coin()) wire::write(envelope, *message.mutable_envelope());
  if (message.has_join() && input_.coin()) {
    wire::write(spec_, *message.mutable_join()->mutable_spec());
    message.mutable_join()->mutable_spec()->set_job(node.job);
    wire::write(node.facts, *message.mutable_join()->mutable_node());
    if (message.join().has_reattach()) {
      message.mutable_join()->mutable_reattach()->set_run(node.back.run);
    }
  }
  bend(message, input_, input_.below(5));
  const auto let_in = wire::from_wire(message);
  if (!let_in.ok()) return;
  if (const auto* said = std::get_if<AgentMessage>(&*let_in)) say_raw(node, *said);
}

// Every deadline that is due, as a host serves them.
void ServerWorld::tick() {
  int ticks = 0;
  for (auto due = machine_.next_deadline(); due && *due <= now_; due = machine_.next_deadline()) {
    expect(++ticks < kMostTicks, "a deadline that is served is not due again at once");
    step(Tick{});
  }
}

void ServerWorld::pass() {
  now_ = input_.later(now_, machine_.next_deadline(), Instant{kLongest});
  if (!input_.one_in(6)) tick();
}

void ServerWorld::restart() {
  const bool from_journal = !input_.one_in(4);
  for (Node& node : nodes_)
    node.session = 0;
  machine_ = Rendezvous(options(), Rng(input_.byte()));
  judge_.server_started(from_journal);
  leaves_ = false;
  if (from_journal) {
    step(JournalRead{std::vector<RunRecord>(judge_.journal())});
  }
}

Order ServerWorld::order(const Node& node) {
  switch (input_.below(4)) {
    case 0: return StopJob{};
    case 1: return RestartJob{};
    case 2: return DrainNode{node.facts.name};
    default: break;
  }
  const auto min = static_cast<std::uint32_t>(input_.below(kNodes + 1));
  return ScaleJob{min, min + static_cast<std::uint32_t>(input_.below(kNodes))};
}

void ServerWorld::act() {
  Node& node = nodes_[input_.below(kNodes)];
  switch (input_.below(24)) {
    case 0: return join(node, false);
    case 1: return join(node, true);
    case 2: return lose(node);
    case 3: return invent(node);
    case 4: {
      const JobId job = input_.coin() ? node.job : "";
      return input_.one_in(3) ? step(OperatorAsked{++requests_, job, "op", order(node)}) : tick();
    }
    case 5: return input_.one_in(16) ? step(ServerStopping{"bye"}) : tick();
    case 6: return input_.one_in(3) ? step(HostStalled{input_.duration()}) : tick();
    case 7: return input_.one_in(4) ? restart() : tick();
    case 8: {
      node.job = input_.one_in(4) ? "k" : "j";
      return;
    }
    case 9:
    case 10:
    case 11:
    case 12:
    case 13: return pass();
    default: return said_by(node);
  }
}

void ServerWorld::fall_silent() {
  for (Node& node : nodes_)
    lose(node);
  // With a grace of days this takes long, but never many deadlines in a short time.
  constexpr int kMost = 3000;
  const Instant began = now_;
  int ticks = 0;
  for (auto due = machine_.next_deadline(); due; due = machine_.next_deadline()) {
    if (++ticks == kMost) {
      expect(now_ - began > 1s, "a server that nobody talks to comes to rest");
      return;
    }
    now_ = std::max(now_, *due);
    step(Tick{});
  }
}

}  // namespace muster::fuzz
