// SPDX-License-Identifier: Apache-2.0
//
// The agent machine driven by bytes: a server that keeps to the protocol, is late, or says
// anything that the border lets in; streams that break; workers that end in every way; signals,
// a lost guardian; time that creeps and jumps. Processes alone behave as processes do. Proves
// that no sequence of events ends the process or breaks a promise of agent_judge.h: never workers
// of two generations, a stop confirmed only when nothing is left, only what lives is signalled,
// messages that the server's border takes, one stream and one port at a time, one Finish with
// nothing left and nothing after it, no deadline that comes again for ever.
#include "agent/core/agent.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "proto/wire/messages.h"
#include "tests/fuzz/agent_judge.h"
#include "tests/fuzz/bend.h"
#include "tests/fuzz/input.h"
#include "tests/unit/wire/random_messages.h"

namespace muster::fuzz {
namespace {

using namespace agent;

constexpr int kMostTicks = 200;  // at one instant
constexpr Duration kLongest = std::chrono::hours(24 * 365 * 8);

AgentConfig config_from(Input& input) {
  AgentConfig config;
  config.spec.job = "j";
  config.spec.min_nodes = 1 + input.below(2);
  config.spec.max_nodes = config.spec.min_nodes + input.below(2);
  config.node.name = "a";
  config.node.slots = 1 + input.below(3);
  config.argv = {"/bin/train", "--rank", "${local_rank}"};
  config.environment = {{"PATH", "/bin"}};
  config.forward_signals = {10};
  config.seed = input.byte();
  if (input.coin()) config.stop_signal = 1 + static_cast<int>(input.below(64));
  config.stop_scope = static_cast<SignalScope>(input.below(2));
  config.exit_code = static_cast<ExitCodeMode>(input.below(2));
  if (input.one_in(4)) config.hang_timeout = config.hang_first = 1s;
  JobPolicy& policy = config.spec.policy;
  for (Duration* duration :
       {&config.stop_budget, &policy.join_timeout, &policy.stop_grace, &policy.heartbeat,
        &policy.node_timeout, &policy.server_grace, &policy.reconnect_grace}) {
    if (input.one_in(3)) *duration = input.duration();
  }
  policy.heartbeat = std::max(policy.heartbeat, Duration{1});
  policy.node_timeout = std::max(policy.node_timeout, Duration{1});
  return config;
}

class Node {
 public:
  explicit Node(Input& input)
      : input_(input), config_(config_from(input)), judge_(config_), agent_(config_) {
    known_.job = "j";
    known_.run = "r1";
    known_.node = "a";
    known_.incarnation = 1;
    known_.epoch = 1;
    step(Started{});
  }

  bool finished() const { return judge_.finished(); }

  void act() {
    switch (input_.below(16)) {
      case 0: return link();
      case 1: return port();
      case 2:
      case 3:
      case 4: return process();
      case 5: return rare();
      case 6: return step(ProgressSampled{{{input_.below(4), input_.below(9), {}, 1s}}});
      case 7:
      case 8:
      case 9: return pass();
      case 10: return invent();
      default: return server();
    }
  }

  // Impatience, and workers that die of it: every input comes to its end.
  void end() {
    for (int i = 0; i < 3; ++i) {
      now_ = now_ + 200ms;
      step(SignalReceived{15});
    }
    for (int i = 0; i < 20 && !finished(); ++i) {
      for (std::uint32_t rank = 0; rank < judge_.processes.size(); ++rank) {
        if (!judge_.processes[rank].ended) end_process(rank);
        if (!judge_.processes[rank].gone) gone(rank);
      }
      now_ = now_ + 1s;
      step(Tick{});
    }
    expect(finished(), "an agent that is told to end ends");
    step(SignalReceived{15});
    expect(!agent_.next_deadline(), "an agent that ended wants nothing");
  }

 private:
  void step(const Event& event) { judge_.stepped(event, agent_.step(event, now_)); }

  void tick() {
    int ticks = 0;
    for (auto due = agent_.next_deadline(); due && *due <= now_; due = agent_.next_deadline()) {
      expect(++ticks < kMostTicks, "a deadline that is served is not due again at once");
      step(Tick{});
    }
  }

  void pass() {
    now_ = input_.later(now_, agent_.next_deadline(), Instant{kLongest});
    if (!input_.one_in(6)) tick();
  }

  void link() {
    if (input_.one_in(4)) {
      if (judge_.stream == Stream::kClosed) return;
      judge_.stream = Stream::kClosed;
      return step(LinkDown{"broke", input_.coin()});
    }
    if (judge_.stream != Stream::kOpening) return;
    judge_.stream = Stream::kUp;
    step(LinkUp{});
  }

  void port() {
    if (judge_.ports_asked == 0) return;
    if (input_.one_in(4)) return step(MasterPortFailed{judge_.attempt_asked, "none is free"});
    step(MasterPortHeld{judge_.attempt_asked, 20001});
  }

  void end_process(std::uint32_t rank) {
    Process& process = judge_.processes[rank];
    process.ended = true;
    WorkerEnded ended;
    ended.local_rank = rank;
    ended.pid = process.spawned ? 100 + rank : 0;
    ended.order = ++order_;
    const std::uint32_t how = input_.below(8);
    ended.status.kind = !process.spawned && how == 0 ? ExitStatus::Kind::kExecFailed
                        : how <= 3                   ? ExitStatus::Kind::kSignaled
                                                     : ExitStatus::Kind::kExited;
    ended.status.value = how <= 1 ? 15 : how == 2 ? 9 : how == 3 ? 11 : how == 4 ? 1 : 0;
    ended.oom = input_.one_in(8);
    ended.secondary = input_.one_in(8);
    step(ended);
  }

  void gone(std::uint32_t rank) {
    judge_.processes[rank].gone = true;
    step(WorkerGone{rank});
  }

  void process() {
    if (judge_.processes.empty()) return;
    const std::uint32_t rank = input_.below(static_cast<std::uint32_t>(judge_.processes.size()));
    Process& process = judge_.processes[rank];
    if (!process.spawned && !process.ended && !input_.one_in(4)) {
      process.spawned = true;
      return step(WorkerSpawned{rank, 100 + rank});
    }
    if (!process.ended) return end_process(rank);
    if (!process.gone) return gone(rank);
  }

  void rare() {
    switch (input_.below(16)) {
      case 0: return step(SignalReceived{15});
      case 1: return step(SignalReceived{10});
      case 2: return step(FaultFired{input_.below(3), std::nullopt});
      case 3: {
        if (judge_.processes.empty() || judge_.processes[0].gone) return;
        judge_.processes[0].given_up = true;
        return step(WorkerUnkillable{0, 100, "D"});
      }
      case 4: return input_.one_in(4) ? step(GuardianLost{}) : tick();
      case 5: return step(Started{});
      case 7: return step(StacksCaptured{1 + input_.below(2), {{0, "", input_.coin()}}});
      case 6: return judge_.stream == Stream::kOpening ? tick() : step(LinkUp{});
      default: return tick();
    }
  }

  void say(ServerBody body) {
    ServerMessage message{known_, std::move(body)};
    message.envelope.generation = generation_;
    step(ServerSaid{std::move(message)});
  }

  Assignment assignment() {
    Assignment assignment;
    assignment.generation = generation_;
    const std::uint32_t slots = config_.node.slots;
    assignment.members = {{"a", 0, 0, slots}, {"b", 1, slots, slots}};
    if (input_.one_in(4)) std::swap(assignment.members[0].node, assignment.members[1].node);
    assignment.group_rank = assignment.members[0].node == "a" ? 0 : 1;
    assignment.world_size = 2 * slots;
    assignment.master_addr = "10.0.0.1";
    assignment.restarts_used = input_.below(3);
    if (input_.one_in(8)) {
      assignment.faults = {
          {{0, FaultAction::kKill, {}, {0, {}, {}, {}}, 9, {}, 1, 1, {}, {}, "f"}, 0}};
    }
    return assignment;
  }

  // What a server that keeps to the protocol may say, now or a little late.
  void server() {
    switch (input_.below(12)) {
      case 0:
      case 1: return say(accepted());
      case 2:
      case 3:
        generation_ += input_.one_in(4) ? 0 : 1;
        attempt_ = input_.below(2);
        return say(Prepare{attempt_, assignment()});
      case 4:
      case 5: return say(Commit{attempt_, 20001});
      case 6: return say(StopOrder{static_cast<StopMode>(input_.below(2)), input_.coin(), "why"});
      case 7: return say(HeartbeatAck{judge_.heartbeat_sent - (input_.one_in(4) ? 1 : 0)});
      case 8: {
        JobEvent event;
        event.generation = generation_;
        event.body = event::GenerationRunning{};
        return say(JobEventNotice{event, 0s});
      }
      case 9: return say(Waiting{Waiting::Why::kBelowMin, 1, 2, {"a"}, 1, 10s, ""});
      case 10: {
        known_.run = input_.one_in(4) ? "r2" : "r1";
        known_.incarnation = 1 + input_.below(3);
        known_.epoch = 1 + input_.below(3);
        return;
      }
      default: return say_last();
    }
  }

  JoinAccepted accepted() {
    JoinAccepted accepted;
    accepted.policy = config_.spec.policy;
    if (input_.one_in(4)) accepted.policy.stop_grace = input_.duration();
    if (input_.one_in(4)) accepted.policy.server_grace = input_.duration();
    return accepted;
  }

  void say_last() {
    Outcome outcome;
    outcome.kind = static_cast<OutcomeKind>(input_.below(6));
    outcome.exit_code = outcome.kind == OutcomeKind::kSucceeded ? 0 : 1;
    switch (input_.below(16)) {
      case 0: return say(OutcomeNotice{outcome});
      case 1: return say(Evicted{"you are lost"});
      case 2: return say(ServerLeaving{"bye"});
      case 3: return say(JoinRefused{JoinRefused::Why::kFull, "full", 2});
      case 4: return say(JoinRefused{JoinRefused::Why::kNotYet, "still leaving", 75});
      default: return say(Stale{"heartbeat", known_});
    }
  }

  // Anything that the border lets in.
  void invent() {
    test::RandomMessages made(input_.number(2));
    v1::ServerMessage message =
        wire::to_wire(made.server_message(input_.below(std::variant_size_v<ServerBody>)));
    Envelope envelope = known_;
    envelope.generation = generation_;
    if (!input_.one_in(4)) wire::write(envelope, *message.mutable_envelope());
    bend(message, input_, input_.below(5));
    const auto let_in = wire::from_wire(message);
    if (!let_in.ok()) return;
    if (const auto* said = std::get_if<ServerMessage>(&*let_in)) step(ServerSaid{*said});
  }

  Input& input_;
  const AgentConfig config_;
  AgentJudge judge_;
  Agent agent_;
  Instant now_;
  Envelope known_;
  Generation generation_ = kNoGeneration;
  Attempt attempt_ = 0;
  std::uint64_t order_ = 0;
};

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr int kMostActs = 400;
  muster::fuzz::Input input(data, size);
  muster::fuzz::Node node(input);
  for (int i = 0; i < kMostActs && !input.empty() && !node.finished(); ++i)
    node.act();
  node.end();
  return 0;
}
