// SPDX-License-Identifier: Apache-2.0
//
// What the machine orders, one function each.
#include <utility>
#include <variant>

#include "agent/shell/agent_runner_state.h"

namespace muster::agent {

void AgentRunner::State::operator()(const Connect& order) {
  if (order.delay <= Duration{0}) return open_link();
  connect_pending = true;
  connect_timer.expires_after(order.delay);
  connect_timer.async_wait([self = weak_from_this()](const boost::system::error_code& error) {
    const auto state = self.lock();
    // A wait that was over when it was called off comes without an error.
    if (error || !state || !state->connect_pending || state->finished) return;
    state->connect_pending = false;
    state->open_link();
  });
}

void AgentRunner::State::operator()(const Disconnect&) {
  ++link_life;
  connect_pending = false;
  connect_timer.cancel();
  if (link_is_up && options.store.link_down) options.store.link_down();
  link_is_up = false;
  link->close();
}

void AgentRunner::State::operator()(Send& order) {
  if (!link_is_up) {
    return log.record(Severity::kInfo, "a message was not sent: the link is down");
  }
  if (auto* join = std::get_if<Join>(&order.message.body); join != nullptr && options.dialed_addr) {
    if (join->node.dialed_addr.empty()) join->node.dialed_addr = options.dialed_addr();
  }
  link->send(std::move(order.message));
}

void AgentRunner::State::operator()(const HoldMasterPort& order) {
  const auto port = master_port.hold(order.low, order.high);
  if (port.ok()) return post(MasterPortHeld{order.attempt, *port});
  post(MasterPortFailed{order.attempt, std::string(port.status().message())});
}

void AgentRunner::State::operator()(const StartWorkers& order) {
  noted_cause.reset();
  directory.set_run(order.run);
  workers->start(order);
  keeper.run_started(directory.job_path(), directory.run_path());
}

void AgentRunner::State::operator()(const AwaitDevices& order) {
  device_watch.await(
      order.pids, order.patience,
      [this, number = order.number](const std::string& holder, const std::string& trouble) {
        if (!trouble.empty()) log.record(Severity::kInfo, "cannot look at GPUs: " + trouble);
        post(DevicesFreed{number, holder});
      });
}

void AgentRunner::State::operator()(const CaptureStacks& order) {
  std::vector<StackTarget> targets;
  for (const CaptureStacks::Worker& worker : order.workers) {
    const std::optional<pid_t> pid = workers->leader(worker.local_rank);
    if (!pid) continue;
    StackTarget target{worker.local_rank, worker.rank, *pid, ""};
    const auto folder = workers->rank_folder(worker.local_rank);
    if (folder) target.path = *folder + "/stacks.txt";
    targets.push_back(std::move(target));
  }
  stacks.start(std::move(targets), kStackPatience,
               [this, number = order.number](std::vector<CapturedStacks> captured) {
                 post(StacksCaptured{number, std::move(captured)});
               });
}

void AgentRunner::State::operator()(const Emit& order) {
  if (!order.run.empty()) run = order.run;
  if (options.on_event) options.on_event(order.event);
  if (!events) return;
  const absl::Status status = events->write(order.run, order.event);
  if (!status.ok()) log.say(Severity::kWarning, std::string(status.message()));
}

void AgentRunner::State::operator()(const NoteFirstCause& order) {
  noted_cause = order.failure;
  log.record(Severity::kWarning,
             "first cause: " + failure_place(order.failure) + ": " + failure_words(order.failure));
  write_termination({job, run, node, std::nullopt, std::nullopt,
                     failure_place(order.failure) + ": " + failure_words(order.failure),
                     order.failure});
}

}  // namespace muster::agent
