// SPDX-License-Identifier: Apache-2.0
//
// `muster status`: an operator's view of live jobs.
#include "launcher/commands/commands.h"
#include "launcher/commands/credentials.h"
#include "launcher/commands/job_report.h"
#include "launcher/commands/operator_target.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

constexpr std::string_view kStatusHelp =
    "Usage: muster status [--rendezvous HOST:PORT] [--job ID] [--json]\n"
    "\n"
    "Shows live jobs: their phase, generation, restarts, nodes, ranks and progress.\n"
    "Without an address: the one job that this user runs on this host; several are\n"
    "listed (exit 2).\n"
    "\n"
    "  --rendezvous HOST:PORT   ask this server, port 29400 if none is given\n"
    "  --job ID                 this job only\n"
    "  --json                   one JSON object, for scripts\n";

constexpr std::string_view kStatusExamples =
    "\n"
    "Examples:\n"
    "  muster status\n"
    "  muster status --rendezvous node0:29400 --job train-7 --json\n"
    "\n"
    "Exit codes: 0 shown; 2 usage, no live job, or several; 75 the server does not\n"
    "answer.\n";

}  // namespace

int status_command(const Words& words) {
  std::vector<SmallFlag> flags = credential_flags();
  flags.insert(flags.end(), {{"rendezvous", true}, {"job", true}, {"json", false}});
  const absl::StatusOr<SmallLine> line = parse_small("status", words, flags);
  if (!line.ok()) return refuse(cat(line.status().message()));
  if (line->has("help")) return print(cat(kStatusHelp, kCredentialsHelp, kStatusExamples)) ? 0 : 1;
  if (!line->rest.empty()) return refuse_surplus("status", line->rest[0]);
  const absl::StatusOr<OperatorTarget> target = find_target(*line);
  if (!target.ok()) return refuse(cat(target.status().message()));
  absl::StatusOr<rendezvous::ServerDescription> server =
      rendezvous::describe(target->control, kOperatorPatience, target->job.value_or(""));
  if (!server.ok()) return explain_refusal(*target, server.status());
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

}  // namespace muster::launcher
