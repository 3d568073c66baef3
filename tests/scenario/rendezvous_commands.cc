// SPDX-License-Identifier: Apache-2.0
#include "tests/scenario/rendezvous_commands.h"

#include <string>

#include "proto/base/rng.h"

namespace muster::scenario {

void read_job(Command& command, JobSpec& spec) {
  spec.job = command.text_or("id", spec.job);
  if (const auto nodes = command.text("nnodes")) {
    const std::size_t colon = nodes->find(':');
    spec.min_nodes = static_cast<std::uint32_t>(std::stoul(nodes->substr(0, colon)));
    spec.max_nodes = colon == std::string::npos
                         ? spec.min_nodes
                         : static_cast<std::uint32_t>(std::stoul(nodes->substr(colon + 1)));
  }
  if (const auto program = command.text("program")) {
    spec.program = *program;
    spec.program_hash = hash_text(*program);
  }
  JobPolicy& policy = spec.policy;
  const auto count = [&](const char* key, std::uint32_t& field) {
    field = static_cast<std::uint32_t>(command.number_or(key, field));
  };
  const auto time = [&](const char* key, Duration& field) {
    field = command.duration(key).value_or(field);
  };
  count("restarts", policy.max_restarts);
  count("no_progress", policy.max_no_progress);
  count("losses", policy.max_node_losses);
  if (const auto window = command.duration("window")) policy.max_restarts_window = window;
  time("backoff", policy.restart_backoff_max);
  if (const auto grow = command.text("grow")) {
    policy.grow = *grow == "checkpoint" ? Grow::kCheckpoint
                  : *grow == "never"    ? Grow::kNever
                                        : Grow::kNow;
  }
  if (const auto spares = command.number("spares")) {
    policy.max_spares = static_cast<std::uint32_t>(*spares);
  }
  count("quarantine", policy.quarantine.causes);
  time("quarantine_window", policy.quarantine.window);
  time("cooldown", policy.quarantine.cooldown);
  if (command.text_or("fence", "") == "strict") policy.fence = Fence::kStrict;
  time("grow_interval", policy.grow_interval);
  time("join_timeout", policy.join_timeout);
  time("last_call", policy.last_call);
  time("stop_grace", policy.stop_grace);
  time("node_timeout", policy.node_timeout);
  time("reconnect_grace", policy.reconnect_grace);
  time("recovery_window", policy.recovery_window);
  time("server_grace", policy.server_grace);
}

void read_fault(Command& command, JobSpec& spec) {
  Fault fault;
  fault.index = static_cast<std::uint32_t>(spec.faults.faults.size());
  const std::string action = command.text_or("do", "kill");
  if (action == "stop") fault.action = FaultAction::kStop;
  if (action == "kill-agent") fault.action = FaultAction::kKillAgent;
  fault.when.generation = command.number_or("generation", 0);
  fault.when.after = command.duration("after");
  if (const auto step = command.number("step")) fault.when.step = static_cast<std::uint64_t>(*step);
  if (const auto rank = command.number("rank")) fault.on.rank = static_cast<std::uint32_t>(*rank);
  if (const auto rank = command.number("local_rank")) {
    fault.on.local_rank = static_cast<std::uint32_t>(*rank);
  }
  fault.on.node = command.text("node");
  fault.text = "{" + action + " #" + std::to_string(fault.index) + "}";
  spec.faults.faults.push_back(fault);
}

void read_exit(Command& command, WorkerExited& exited) {
  if (const auto signal = command.text("signal")) {
    exited.status.kind = ExitStatus::Kind::kSignaled;
    exited.status.value = signal_number(*signal).value_or(0);
  } else if (const auto error = command.number("exec")) {
    exited.status.kind = ExitStatus::Kind::kExecFailed;
    exited.status.value = static_cast<int>(*error);
    exited.status.detail = "./train.py: errno " + std::to_string(*error);
    exited.pid = 0;
  } else {
    exited.status.value = static_cast<int>(command.number_or("code", 0));
  }
  exited.torn_down = command.flag_or("torn", false);
  exited.parting = command.flag_or("parting", false);
  exited.oom = command.flag_or("oom", false);
  exited.agent_signaled = command.flag_or("signaled", false);
  exited.stops_agent = command.flag_or("stops", false);
  exited.secondary = command.flag_or("secondary", false);
  exited.order = static_cast<std::uint64_t>(command.number_or("order", exited.rank));
  exited.age = command.duration("age").value_or(Duration{0});
  exited.stderr_tail = command.text_or("tail", "");
}

}  // namespace muster::scenario
