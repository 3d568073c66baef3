// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/agent_judge.h"

#include <algorithm>
#include <variant>

#include "proto/wire/messages.h"

namespace muster::fuzz {

using namespace agent;

void AgentJudge::stepped(const Event& event, const std::vector<Action>& actions) {
  expect(!finished_ || actions.empty(), "nothing follows Finish");
  before(event);
  for (const Action& action : actions) {
    expect(!finished_, "nothing follows Finish");
    std::visit([this](const auto& order) { on(order); }, action);
  }
  check_foreign(event, actions);
}

void AgentJudge::before(const Event& event) {
  if (const auto* said = std::get_if<ServerSaid>(&event)) {
    const ServerBody& body = said->message.body;
    const bool accepts = std::holds_alternative<JoinAccepted>(body);
    if (stream != Stream::kUp) return;
    accepted_ = accepted_ || (accepts && said->message.envelope.job == config_.spec.job);
    orders_ += accepts || std::holds_alternative<StopOrder>(body) ? 1U : 0U;
  } else if (std::holds_alternative<MasterPortFailed>(event) ||
             std::holds_alternative<MasterPortHeld>(event)) {
    // Of several asked for only the last is wanted, and answers come in order.
    const bool is_last = ports_asked > 0 && --ports_asked == 0;
    if (is_last && std::holds_alternative<MasterPortFailed>(event)) port_held_ = false;
  }
}

// What a server of another job says is dropped, and that is said.
void AgentJudge::check_foreign(const Event& event, const std::vector<Action>& actions) const {
  const auto* said = std::get_if<ServerSaid>(&event);
  if (said == nullptr || said->message.envelope.job == config_.spec.job || finished_) return;
  if (stream != Stream::kUp) return;
  const auto has = [&](auto is_one) { return std::any_of(actions.begin(), actions.end(), is_one); };
  expect(has([](const Action& action) {
           const auto* say = std::get_if<Say>(&action);
           return say != nullptr && say->text.find("stale") != std::string::npos;
         }),
         "a message of another job is said to be stale");
  expect(!has([](const Action& action) { return std::holds_alternative<StartWorkers>(action); }),
         "a message of another job starts nothing");
}

void AgentJudge::on(const Connect&) {
  expect(stream == Stream::kClosed, "one stream at a time");
  stream = Stream::kOpening;
  accepted_ = false;
}

void AgentJudge::on(const Disconnect&) {
  expect(stream != Stream::kClosed, "only an open stream is closed");
  stream = Stream::kClosed;
}

void AgentJudge::on(const Send& send) {
  expect(stream == Stream::kUp, "nothing is sent without a stream");
  const AgentBody& body = send.message.body;
  incarnation_ = send.message.envelope.incarnation;
  expect(accepted_ || std::holds_alternative<Join>(body), "a stream begins with a Join");
  if (const auto* beat = std::get_if<Heartbeat>(&body)) heartbeat_sent = beat->sequence;
  const auto let_in = wire::from_wire(wire::to_wire(send.message));
  expect(let_in.ok(), "a server's border takes what the agent says", let_in.status().ToString());
  if (!std::holds_alternative<StopConfirmed>(body)) return;
  expect(++confirmed_ <= orders_, "a stop is confirmed once an order");
  for (const Process& process : processes) {
    expect(process.gone || process.generation != send.message.envelope.generation,
           "a stop is confirmed when nothing is left");
  }
}

void AgentJudge::on(const HoldMasterPort& hold) {
  expect(!port_held_, "one master port at a time");
  port_held_ = true;
  ++ports_asked;
  attempt_asked = hold.attempt;
}

void AgentJudge::on(const ReleaseMasterPort&) {
  expect(port_held_, "only a port that is held is released");
  port_held_ = false;
}

void AgentJudge::on(const StartWorkers& start) {
  for (const Process& process : processes)
    expect(process.gone, "workers of two generations never run together");
  const auto [newest, is_new] = newest_.try_emplace({start.run, incarnation_}, start.generation);
  expect(is_new || start.generation > newest->second, "a generation starts once");
  newest->second = start.generation;
  expect(start.workers.size() == config_.node.slots, "every slot has its worker");
  for (std::uint32_t i = 0; i < start.workers.size(); ++i) {
    expect(start.workers[i].local_rank == i, "local ranks are in order");
    expect(start.workers[i].rank == start.workers[0].rank + i, "ranks of a node are in a row");
  }
  processes.assign(start.workers.size(), Process{start.generation, false, false, false, false});
}

void AgentJudge::on(const SignalWorker& signal) {
  expect(signal.local_rank < processes.size() && !processes[signal.local_rank].gone,
         "only what lives is signalled");
}

void AgentJudge::on(const WriteStopFile& file) {
  expect(file.local_rank < processes.size() && !processes[file.local_rank].gone,
         "only what lives is told to stop");
}

void AgentJudge::on(const Finish& finish) {
  finished_ = true;
  expect(stream == Stream::kClosed, "an agent ends without a stream");
  expect(!port_held_, "an agent ends without a master port");
  for (const Process& process : processes)
    expect(process.gone || process.given_up, "an agent ends when its workers are gone");
  expect(finish.exit_code >= 0 && finish.exit_code <= 255, "an exit code is a byte");
  expect(finish.exit_code != 0 || finish.outcome, "success is what the server says");
}

}  // namespace muster::fuzz
