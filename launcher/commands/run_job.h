// SPDX-License-Identifier: Apache-2.0
//
// One node's part in a job, from the guarded process's first line to its exit code: finds or
// hosts the server, runs the agent, and stays as long as others need the server in it.
//
//   looking ──> running ──> lingering ──> ended
//      └─ standalone starts here ─┘   (a hosting process waits for JobOver)
//
// A stop signal while hosting is told to the other nodes before anything else (server_leaving).
//
// Thread rule: the thread that calls run(), which must be the process's first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/shell/guardian.h"
#include "launcher/commands/options.h"
#include "launcher/commands/program.h"
#include "proto/transport/credentials.h"

namespace muster::launcher {

// All that was decided before the first fork.
struct RunPlan {
  RunOptions options;
  EnvironmentMap environment;
  Program program;
  std::uint32_t slots = 1;
  std::vector<std::vector<int>> processors;  // --numa-binding: by local rank; empty: all
  std::vector<std::string> own_devices;      // --virtual-local-rank: by local rank
  JobId job;
  NodeName node;
  std::string host;
  transport::Credentials credentials;  // of --token-file and --tls-*
  std::string folder;                  // agent::JobFolder: control socket, store token
  std::string scratch;                 // below it, for workers
  std::string cgroup;                  // agent::job_cgroup_path
};

// Returns the exit code of `muster run`.
int run_job(const RunPlan& plan, const agent::Guarded& guarded);

}  // namespace muster::launcher
