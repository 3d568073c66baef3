// SPDX-License-Identifier: Apache-2.0
//
// A run's plan in the words of the agent: pure translation.
#pragma once

#include "agent/core/agent.h"
#include "agent/shell/agent_runner.h"
#include "launcher/commands/run_job.h"

namespace muster::launcher {

agent::AgentConfig make_agent_config(const RunPlan& plan);

// All but the store's hooks and the dialed address.
agent::RunnerOptions make_runner_options(const RunPlan& plan, const agent::Guarded& guarded);

// The base folder of log files.
std::string log_dir_of(const RunOptions& options, const EnvironmentMap& environment);

// Where why it ended is written; empty: nowhere. A pod's own file, where nothing else was asked
// for. A worker's `muster run` inside another leaves that to the one outside.
std::string termination_log_of(const RunOptions& options, const EnvironmentMap& environment);

// The program and its arguments as one line that a shell would read back.
std::string program_line(const std::vector<std::string>& argv);

}  // namespace muster::launcher
