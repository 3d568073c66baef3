// SPDX-License-Identifier: Apache-2.0
//
// `muster stop`, `scale`, `drain` and `restart`: orders for a job that runs.
#include <unistd.h>

#include "launcher/commands/commands.h"
#include "launcher/commands/credentials.h"
#include "launcher/commands/node_facts.h"
#include "launcher/commands/operator_target.h"
#include "launcher/commands/options.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

using rendezvous::Order;

constexpr std::string_view kTargetHelp =
    "  --rendezvous HOST:PORT   ask this server, port 29400 if none is given; one\n"
    "                           that listens beyond loopback without a token or TLS\n"
    "                           takes orders only on its own host\n"
    "  --job ID                 which job, where there are several\n";

constexpr std::string_view kWithoutAddress =
    "\n"
    "Without an address: the one job that this user runs on this host; several are\n"
    "listed (exit 2).\n"
    "\n";

constexpr std::string_view kExitHelp =
    "\n"
    "Exit codes: 0 it is being done; 2 usage, no such job, several, not allowed or\n"
    "not possible now; 75 the server does not answer.\n";

struct Verb {
  std::string_view name;
  std::string_view operand;  // its one word; empty: none
  std::string_view help;     // usage and what it does
  std::string_view examples;
  absl::StatusOr<Order> (*order)(const std::string& operand);
};

constexpr Verb kStop{
    "stop", "",
    "Usage: muster stop [--rendezvous HOST:PORT] [--job ID]\n"
    "\n"
    "Ends a job on all its nodes: workers get their stop signal and --stop-grace, and\n"
    "every `muster run` of the job exits 143.\n",
    "Examples:\n"
    "  muster stop\n"
    "  muster stop --job train-7\n",
    [](const std::string&) -> absl::StatusOr<Order> { return rendezvous::StopJob{}; }};

constexpr Verb kRestart{
    "restart", "",
    "Usage: muster restart [--rendezvous HOST:PORT] [--job ID]\n"
    "\n"
    "Stops the workers of a job and begins a new generation of the same nodes. It\n"
    "costs none of --max-restarts. Once a rank of the generation has exited 0 it is\n"
    "refused, since that rank would run again.\n",
    "Examples:\n"
    "  muster restart --job train-7\n",
    [](const std::string&) -> absl::StatusOr<Order> { return rendezvous::RestartJob{}; }};

constexpr Verb kDrain{
    "drain", "NODE",
    "Usage: muster drain NODE [--rendezvous HOST:PORT] [--job ID]\n"
    "\n"
    "Takes a node out of a job, e.g. before its maintenance: the generation is\n"
    "stopped with the stop file and --stop-grace, the others go on without it (a\n"
    "spare takes its place), and its `muster run` exits 143. It costs none of\n"
    "--max-restarts. With fewer than MIN nodes left the job waits for a replacement\n"
    "until --join-timeout. `muster status` shows the nodes' names. A node that hosts\n"
    "the server of its job is not drained: the job would end with it.\n",
    "Examples:\n"
    "  muster drain gpu-12 --rendezvous node0:29400\n",
    [](const std::string& node) -> absl::StatusOr<Order> { return rendezvous::DrainNode{node}; }};

absl::StatusOr<Order> scale_order(const std::string& text) {
  const std::vector<std::string_view> parts = split(text, ':');
  const auto min = read_number<std::uint32_t>(parts.front());
  const auto max = read_number<std::uint32_t>(parts.back());
  if (parts.size() > 2 || !min || !max || *min == 0 || *min > *max) {
    return absl::InvalidArgumentError(
        cat("scale ", text, ": needs MIN:MAX or one number of nodes, with 1 <= MIN <= MAX"));
  }
  return rendezvous::ScaleJob{*min, *max};
}

constexpr Verb kScale{
    "scale", "MIN:MAX",
    "Usage: muster scale MIN:MAX [--rendezvous HOST:PORT] [--job ID]\n"
    "\n"
    "Changes how many nodes a job has, in place of its --nnodes. With more nodes than\n"
    "MAX the surplus, those of the highest group ranks, become spares; with fewer,\n"
    "spares become members at once, and nodes that come later are taken in as --grow\n"
    "says. The generation that runs is stopped for it only where its nodes change;\n"
    "that costs none of --max-restarts. A job below the new MIN runs on as it is\n"
    "until MIN are here, whatever --grow says.\n",
    "Examples:\n"
    "  muster scale 2:8\n"
    "  muster scale 4 --job train-7 --rendezvous node0:29400\n",
    scale_order};

absl::StatusOr<JobId> only_job(const OperatorTarget& target) {
  const absl::StatusOr<rendezvous::ServerDescription> server =
      rendezvous::describe(target.control, kOperatorPatience);
  if (!server.ok()) return server.status();
  std::vector<std::string> live;
  for (const rendezvous::JobView& job : server->jobs) {
    if (!job.outcome) live.push_back(job.spec.job);
  }
  if (live.size() == 1) return live[0];
  return absl::OutOfRangeError(
      live.empty() ? "the server runs no job"
                   : cat("several jobs there, choose one with --job: ", join(live, ", ")));
}

int give(const Verb& verb, const Words& words) {
  std::vector<SmallFlag> flags = credential_flags();
  flags.insert(flags.end(), {{"rendezvous", true}, {"job", true}});
  const absl::StatusOr<SmallLine> line = parse_small(verb.name, words, flags);
  if (!line.ok()) return refuse(cat(line.status().message()));
  if (line->has("help")) {
    const std::string help = cat(verb.help, "\n", kTargetHelp, kCredentialsHelp, kWithoutAddress,
                                 verb.examples, kExitHelp);
    return print(help) ? 0 : 1;
  }
  const std::size_t operands = verb.operand.empty() ? 0 : 1;
  if (line->rest.size() > operands) return refuse_surplus(verb.name, line->rest[operands]);
  if (line->rest.size() < operands) {
    return refuse(cat(verb.name, " needs ", verb.operand, "; see `muster ", verb.name, " --help`"));
  }
  const absl::StatusOr<Order> order = verb.order(operands == 0 ? "" : line->rest[0]);
  if (!order.ok()) return refuse(cat(order.status().message()));
  absl::StatusOr<OperatorTarget> target = find_target(*line);
  if (!target.ok()) return refuse(cat(target.status().message()));
  if (!target->job) {
    const absl::StatusOr<JobId> job = only_job(*target);
    if (absl::IsOutOfRange(job.status())) return refuse(cat(job.status().message()));
    if (!job.ok()) return explain_refusal(*target, job.status());
    target->job = *job;
  }
  const std::string by =
      cat("user ", user_name(read_environment()), " on ", host_name(), ", pid ", getpid());
  const absl::StatusOr<std::string> answer =
      rendezvous::operate(target->control, *target->job, *order, by, kOperatorPatience);
  if (!answer.ok()) return explain_refusal(*target, answer.status());
  say(*answer);
  return 0;
}

}  // namespace

int stop_command(const Words& words) {
  return give(kStop, words);
}
int restart_command(const Words& words) {
  return give(kRestart, words);
}
int drain_command(const Words& words) {
  return give(kDrain, words);
}
int scale_command(const Words& words) {
  return give(kScale, words);
}

}  // namespace muster::launcher
