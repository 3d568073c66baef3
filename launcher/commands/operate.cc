// SPDX-License-Identifier: Apache-2.0
//
// `muster status` and `muster stop`: an operator's view of live jobs and the way to end one.
#include <optional>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "launcher/commands/commands.h"
#include "launcher/commands/job_report.h"
#include "launcher/commands/node_facts.h"
#include "launcher/commands/options.h"
#include "launcher/commands/registry.h"
#include "launcher/commands/small_flags.h"
#include "launcher/commands/text.h"
#include "launcher/rendezvous/shell/control_client.h"

namespace muster::launcher {
namespace {

constexpr std::uint16_t kDefaultPort = 29400;
constexpr Duration kPatience = 5s;
constexpr int kExitUnreachable = 75;

constexpr std::string_view kStatusHelp =
    "Usage: muster status [--rendezvous HOST:PORT] [--job ID] [--json]\n"
    "\n"
    "Shows live jobs: their phase, generation, restarts, nodes, ranks and progress. Without an\n"
    "address: the one job that this user runs on this host; several are listed (exit 2).\n"
    "\n"
    "  --rendezvous HOST:PORT   ask this server, port 29400 if none is given\n"
    "  --job ID                 this job only\n"
    "  --json                   one JSON object, for scripts\n"
    "\n"
    "Examples:\n"
    "  muster status\n"
    "  muster status --rendezvous node0:29400 --job train-7 --json\n"
    "\n"
    "Exit codes: 0 shown; 2 usage, no live job, or several; 75 the server does not answer.\n";

constexpr std::string_view kStopHelp =
    "Usage: muster stop [--rendezvous HOST:PORT] [--job ID]\n"
    "\n"
    "Ends a job on all its nodes: workers get their stop signal and --stop-grace, and every\n"
    "`muster run` of the job exits 143. Without an address: the one job that this user runs on\n"
    "this host; several are listed (exit 2).\n"
    "\n"
    "  --rendezvous HOST:PORT   ask this server; one that listens beyond loopback takes a stop\n"
    "                           only on its own host\n"
    "  --job ID                 which job, where there are several\n"
    "\n"
    "Examples:\n"
    "  muster stop\n"
    "  muster stop --job train-7\n"
    "\n"
    "Exit codes: 0 the job is being stopped; 2 usage, no such job, several, or not allowed;\n"
    "75 the server does not answer.\n";

struct Target {
  rendezvous::ControlTarget control;
  std::string flag;          // for messages: what the address came from
  std::optional<JobId> job;  // nullopt: all (status), or the only one (stop)
};

absl::StatusOr<Target> by_address(const SmallLine& line) {
  const absl::StatusOr<Endpoint> endpoint = parse_endpoint(line.get("rendezvous"), kDefaultPort);
  if (!endpoint.ok()) {
    return absl::InvalidArgumentError(cat("--rendezvous: ", endpoint.status().message()));
  }
  Target target;
  target.control.host = endpoint->host;
  target.control.port = endpoint->port;
  target.flag = "--rendezvous ";
  if (line.has("job")) target.job = line.get("job");
  return target;
}

// Where the registry's job is reached: its control socket, where this host has it.
absl::StatusOr<Target> by_registry(const SmallLine& line) {
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
  Target target;
  target.job = jobs[0].job;
  target.control.unix_path = jobs[0].socket;
  target.flag = cat("job ", jobs[0].job, ": ");
  if (!jobs[0].socket.empty()) return target;
  const absl::StatusOr<Endpoint> endpoint = parse_endpoint(jobs[0].rendezvous, kDefaultPort);
  if (!endpoint.ok()) return endpoint.status();
  target.control.host = endpoint->host;
  target.control.port = endpoint->port;
  return target;
}

absl::StatusOr<Target> find_target(const SmallLine& line) {
  return line.has("rendezvous") ? by_address(line) : by_registry(line);
}

int unreachable(const Target& target, const absl::Status& status) {
  say(cat(target.flag, status.message()));  // begins with the address
  const bool ours = absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status) ||
                    absl::IsNotFound(status) || absl::IsInvalidArgument(status);
  return ours ? kExitUsage : kExitUnreachable;
}

}  // namespace

int status_command(const Words& words) {
  const absl::StatusOr<SmallLine> line =
      parse_small("status", words, {{"rendezvous", true}, {"job", true}, {"json", false}});
  if (!line.ok()) return refuse(cat(line.status().message()));
  if (line->has("help")) return print(kStatusHelp) ? 0 : 1;
  if (!line->rest.empty()) return refuse_surplus("status", line->rest[0]);
  const absl::StatusOr<Target> target = find_target(*line);
  if (!target.ok()) return refuse(cat(target.status().message()));
  absl::StatusOr<rendezvous::ServerDescription> server =
      rendezvous::describe(target->control, kPatience);
  if (!server.ok()) return unreachable(*target, server.status());
  if (target->job) {
    std::erase_if(server->jobs,
                  [&](const rendezvous::JobView& job) { return job.spec.job != *target->job; });
    if (server->jobs.empty()) {
      return refuse(cat("--job ", *target->job, ": the server knows no such job"));
    }
  }
  const std::string text = line->has("json") ? report_json(*server) : report_text(*server);
  return print(text) ? 0 : 1;
}

int stop_command(const Words& words) {
  const absl::StatusOr<SmallLine> line =
      parse_small("stop", words, {{"rendezvous", true}, {"job", true}});
  if (!line.ok()) return refuse(cat(line.status().message()));
  if (line->has("help")) return print(kStopHelp) ? 0 : 1;
  if (!line->rest.empty()) return refuse_surplus("stop", line->rest[0]);
  absl::StatusOr<Target> target = find_target(*line);
  if (!target.ok()) return refuse(cat(target.status().message()));
  if (!target->job) {
    const absl::StatusOr<rendezvous::ServerDescription> server =
        rendezvous::describe(target->control, kPatience);
    if (!server.ok()) return unreachable(*target, server.status());
    std::vector<std::string> live;
    for (const rendezvous::JobView& job : server->jobs) {
      if (!job.outcome) live.push_back(job.spec.job);
    }
    if (live.size() != 1) {
      return refuse(live.empty()
                        ? "the server runs no job"
                        : cat("several jobs there, choose one with --job: ", join(live, ", ")));
    }
    target->job = live[0];
  }
  const std::string by =
      cat("user ", user_name(read_environment()), " on ", host_name(), ", pid ", getpid());
  const absl::StatusOr<std::string> answer =
      rendezvous::stop_job(target->control, *target->job, by, kPatience);
  if (!answer.ok()) return unreachable(*target, answer.status());
  say(answer->empty() ? cat("job ", *target->job, " is being stopped") : *answer);
  return 0;
}

}  // namespace muster::launcher
