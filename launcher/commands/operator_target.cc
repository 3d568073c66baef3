// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/operator_target.h"

#include <vector>

#include "launcher/commands/commands.h"
#include "launcher/commands/credentials.h"
#include "launcher/commands/node_facts.h"
#include "launcher/commands/options.h"
#include "launcher/commands/registry.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

constexpr int kExitUnreachable = 75;

absl::StatusOr<OperatorTarget> by_address(const SmallLine& line) {
  const absl::StatusOr<Endpoint> endpoint = parse_endpoint(line.get("rendezvous"), kRendezvousPort);
  if (!endpoint.ok()) {
    return absl::InvalidArgumentError(cat("--rendezvous: ", endpoint.status().message()));
  }
  OperatorTarget target;
  target.control.host = endpoint->host;
  target.control.port = endpoint->port;
  target.flag = "--rendezvous ";
  if (line.has("job")) target.job = line.get("job");
  return target;
}

// Where the registry's job is reached: its control socket, where this host has it.
absl::StatusOr<OperatorTarget> by_registry(const SmallLine& line) {
  std::vector<LiveJob> jobs = live_jobs(registry_path(read_environment()));
  if (line.has("job")) {
    std::erase_if(jobs, [&](const LiveJob& job) { return job.job != line.get("job"); });
    if (jobs.empty()) {
      return absl::InvalidArgumentError(
          cat("--job ", line.get("job"), ": no live job of this user on this host"));
    }
  }
  if (jobs.empty()) {
    return absl::InvalidArgumentError(
        "no live job of this user on this host (--rendezvous HOST:PORT asks a server)");
  }
  if (jobs.size() > 1) {
    std::string text = "several live jobs, choose one with --job or --rendezvous:";
    for (const LiveJob& job : jobs) {
      text += cat(" ", job.job, job.rendezvous.empty() ? "" : cat(" at ", job.rendezvous), " (pid ",
                  job.pid, ");");
    }
    text.pop_back();
    return absl::InvalidArgumentError(text);
  }
  OperatorTarget target;
  target.job = jobs[0].job;
  target.control.unix_path = jobs[0].socket;
  target.flag = cat("job ", jobs[0].job, ": ");
  if (!jobs[0].socket.empty()) return target;
  const absl::StatusOr<Endpoint> endpoint = parse_endpoint(jobs[0].rendezvous, kRendezvousPort);
  if (!endpoint.ok()) return endpoint.status();
  target.control.host = endpoint->host;
  target.control.port = endpoint->port;
  return target;
}

}  // namespace

absl::StatusOr<OperatorTarget> find_target(const SmallLine& line) {
  absl::StatusOr<OperatorTarget> target =
      line.has("rendezvous") ? by_address(line) : by_registry(line);
  if (!target.ok() || !target->control.unix_path.empty()) return target;
  absl::StatusOr<transport::Credentials> credentials = credentials_of(line);
  if (!credentials.ok()) return credentials.status();
  target->control.credentials = *std::move(credentials);
  return target;
}

int explain_refusal(const OperatorTarget& target, const absl::Status& status) {
  say(cat(target.flag, status.message()));  // begins with the address
  const bool ours = absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status) ||
                    absl::IsNotFound(status) || absl::IsInvalidArgument(status) ||
                    absl::IsFailedPrecondition(status);
  return ours ? kExitUsage : kExitUnreachable;
}

}  // namespace muster::launcher
