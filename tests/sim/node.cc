// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/node.h"

#include <algorithm>

#include "tests/sim/trace.h"

namespace muster::sim {

Node::Node(World& world, std::size_t index) : world_(world) {
  truth_.index = index;
  truth_.name = node_name(index);
}

std::string Node::state() const {
  if (!agent_) return truth_.name + ": no agent";
  const agent::AgentView view = agent_->view();
  return truth_.name + ": phase " + std::to_string(static_cast<int>(view.phase)) + ", generation " +
         std::to_string(view.generation) + (view.connected ? ", connected" : ", not connected") +
         (frozen_ ? ", frozen" : "") + ", " + std::to_string(view.live_local_ranks.size()) +
         " live";
}

// ---------------------------------------------------------------- the agent process

void Node::start_agent() {
  agent::AgentConfig config;
  config.spec.job = "j";
  config.spec.min_nodes = world_.options.min_nodes;
  config.spec.max_nodes = world_.options.max_nodes;
  config.spec.policy = world_.options.policy;
  config.node.name = truth_.name;
  config.node.host = truth_.name;
  config.node.slots = world_.options.slots_of(truth_.index);
  config.node.node_rank = world_.options.node_rank_of(truth_.index);
  config.node.scheduler_index = world_.options.scheduler_index_of(truth_.index);
  if (world_.options.attempts > 0) {
    if (truth_.life > 0 && world_.chance(world_.options.attempts)) ++attempt_;
    config.node.scheduler_attempt = truth_.name + "#" + std::to_string(attempt_);
  }
  config.node.boot_id = "boot-" + truth_.name;
  config.node.agent_pid = 1000 + static_cast<std::int64_t>(truth_.life);
  config.node.hosts_server = world_.options.hosted && truth_.index == 0;
  config.node.dialed_addr = node_address(truth_.index);
  config.argv = {"/bin/train"};
  config.stop_budget = 6s;
  if (world_.options.hang_watch > 0) {
    config.hang_timeout = 2s;
    config.hang_first = 15s;
  }
  config.seed = world_.rng.next();
  ++truth_.life;
  forget_processes();
  agent_ = std::make_unique<agent::Agent>(config);
  frozen_ = false;
  held_.clear();
  last_answer_ = world_.clock.now();
  world_.checks.agent_started(truth_.index);
  world_.note(truth_.name, "agent starts");
  post(agent::Started{});
}

void Node::kill_agent() {
  if (!agent_) return;
  world_.note(truth_.name, "agent is killed");
  agent_.reset();
  for (const ProcessPtr& process : truth_.processes) {
    world_.clock.after(world_.between(1ms, 50ms), [&world = world_, process] {
      if (process->leader) world.worker_ended(*process, Ending::kKilled);
      process->leader = false;
      process->rest = false;
    });
  }
  stream_.reset();
  truth_.stream_open = truth_.stream_up = false;
  world_.agent_ended(truth_.index);
}

void Node::signal_agent(int signal) {
  post(agent::SignalReceived{signal});
}

void Node::suspend(Duration length) {
  if (!agent_) return;
  world_.note("fault", [&] { return "suspend " + truth_.name; });
  ++world_.checks.tally["agents suspended"];
  constexpr int kTstp = 20;
  constexpr int kCont = 18;
  post(agent::SignalReceived{kTstp});
  later(length, [this] { post(agent::SignalReceived{kCont}); });
}

void Node::freeze(Duration length) {
  if (!agent_ || frozen_) return;
  frozen_ = true;
  for (const ProcessPtr& process : truth_.processes)
    process->frozen = true;
  world_.note(truth_.name, [&] { return "frozen for " + format_duration(length); });
  world_.checks.ages_inexact_until(world_.clock.now() + length);
  later(length, [this] { wake(); });
}

void Node::leap(Duration length) {
  if (!agent_ || frozen_) return;
  world_.note(truth_.name, [&] { return "its clock leaps by " + format_duration(length); });
  ++world_.checks.tally["leaps of a node's clock"];
  world_.checks.ages_inexact_until(world_.clock.now());
  truth_.ahead += length;
  arm_timer(false);
}

// Events received are handled before deadlines.
void Node::wake() {
  frozen_ = false;
  awake_at_ = world_.clock.now();
  world_.note(truth_.name, "awake");
  std::vector<agent::Event> held;
  held.swap(held_);
  for (const agent::Event& event : held) {
    if (agent_) step(event);
  }
  if (agent_) step(agent::Tick{});
}

void Node::post(agent::Event event) {
  if (!agent_) return;
  if (frozen_) {
    held_.push_back(std::move(event));
  } else {
    step(event);
  }
}

void Node::later(Duration delay, std::function<void()> what) {
  world_.clock.after(delay, [this, life = truth_.life, what = std::move(what)] {
    if (agent_ && truth_.life == life) what();
  });
}

void Node::step(const agent::Event& event) {
  if (!std::holds_alternative<agent::Tick>(event)) {
    world_.note(truth_.name, [&] { return text(event); });
  }
  if (const auto* said = std::get_if<agent::ServerSaid>(&event)) {
    if (std::holds_alternative<HeartbeatAck>(said->message.body) ||
        std::holds_alternative<JoinAccepted>(said->message.body)) {
      last_answer_ = world_.clock.now();
    }
  }
  if (std::holds_alternative<agent::LinkUp>(event)) truth_.stream_up = true;
  if (std::holds_alternative<agent::LinkDown>(event)) {
    truth_.stream_open = truth_.stream_up = false;
    stream_.reset();
  }
  std::vector<agent::Action> actions = agent_->step(event, own_now());
  world_.planted.does(truth_, event, actions);
  world_.checks.agent_stepped(truth_, event, actions);
  for (agent::Action& action : actions) {
    world_.note(truth_.name, [&] { return "  " + text(action); });
    carry_out(std::move(action));
    if (!agent_) return;
  }
  arm_timer(std::holds_alternative<agent::Tick>(event));
}

// After a freeze many messages come at one instant, each before what is due: only ticks that leave
// something due are in vain.
void Node::arm_timer(bool ticked) {
  const std::optional<Instant> next = agent_->next_deadline();
  const std::uint64_t timer = ++timer_;
  if (!next) return;
  if (ticked) spins_ = *next <= own_now() ? spins_ + 1 : 0;
  if (spins_ > 100) {
    world_.checks.fail(truth_.name + " wants a tick again and again");
    return;
  }
  world_.clock.at(*next - truth_.ahead, [this, timer, life = truth_.life] {
    if (!agent_ || truth_.life != life || timer_ != timer || frozen_) return;
    sample_progress();
    if (agent_) step(agent::Tick{});
  });
}

void Node::carry_out(agent::Action&& action) {
  if (const auto* open = std::get_if<agent::Connect>(&action)) {
    connect(open->delay);
  } else if (std::holds_alternative<agent::Disconnect>(action)) {
    ++connect_token_;
    if (stream_) world_.close_by_agent(stream_);
    stream_.reset();
    truth_.stream_open = truth_.stream_up = false;
  } else if (auto* send = std::get_if<agent::Send>(&action)) {
    if (stream_) world_.send_to_server(stream_, std::move(send->message));
  } else if (const auto* hold = std::get_if<agent::HoldMasterPort>(&action)) {
    hold_port(hold->attempt);
  } else if (const auto* start = std::get_if<agent::StartWorkers>(&action)) {
    start_workers(*start);
  } else if (const auto* signal = std::get_if<agent::SignalWorker>(&action)) {
    signal_worker(*signal);
  } else if (const auto* file = std::get_if<agent::WriteStopFile>(&action)) {
    heed_stop_file(file->local_rank);
  } else if (const auto* capture = std::get_if<agent::CaptureStacks>(&action)) {
    capture_stacks(*capture);
  } else if (const auto* end = std::get_if<agent::Finish>(&action)) {
    finish(*end);
  }
}

void Node::finish(const agent::Finish& /*finish*/) {
  // An unkillable process keeps the node unfit; the others are gone (the checks saw to it).
  agent_.reset();
  truth_.stream_open = truth_.stream_up = false;
  world_.agent_ended(truth_.index);
}

// ---------------------------------------------------------------- the stream

void Node::connect(Duration delay) {
  truth_.stream_open = true;
  const std::uint64_t token = ++connect_token_;
  later(delay + world_.between(200us, 3ms), [this, token] { dial(token); });
}

// What is neither made nor refused is tried until it is given up.
void Node::dial(std::uint64_t token) {
  if (token != connect_token_) return;
  if (const Instant open = world_.reachable_at(truth_.index); open > world_.clock.now()) {
    return later(open - world_.clock.now() + world_.between(1ms, 1s),
                 [this, token] { dial(token); });
  }
  stream_ = world_.connect(truth_.index, truth_.life);
  if (stream_) {
    truth_.server_life = stream_->server_life;
    post(agent::LinkUp{});
  } else {
    post(agent::LinkDown{"refused"});
  }
}

void Node::link_down(const StreamPtr& stream, const std::string& reason) {
  if (!agent_ || stream_ != stream || !stream->agent_open) return;
  stream->agent_open = false;
  ++connect_token_;
  post(agent::LinkDown{reason});
}

void Node::said(const StreamPtr& stream, ServerMessage message) {
  if (!agent_ || stream_ != stream || !stream->agent_open) return;
  post(agent::ServerSaid{std::move(message)});
}

void Node::hold_port(Attempt attempt) {
  const bool fails = world_.chance(0.01);
  later(world_.between(50us, 1ms), [this, attempt, fails] {
    if (fails) {
      post(agent::MasterPortFailed{attempt, "in use"});
    } else {
      const std::size_t port = 20000 + (truth_.index * 97 + ++ports_) % 9000;
      post(agent::MasterPortHeld{attempt, static_cast<std::uint16_t>(port)});
    }
  });
}

}  // namespace muster::sim
