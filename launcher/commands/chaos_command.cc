// SPDX-License-Identifier: Apache-2.0
//
// `muster chaos check PLAN`: is this plan what I think it is?
#include "launcher/commands/chaos_plan.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/small_flags.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

constexpr std::string_view kHelp =
    "Usage: muster chaos check PLAN\n"
    "\n"
    "Checks a fault plan and prints it in words. PLAN is a file, or JSON text that\n"
    "begins with { or [. `muster run --chaos PLAN` carries it out.\n"
    "\n"
    "A plan is {\"seed\": N, \"faults\": [FAULT, ...]} or the bare list. A FAULT:\n"
    "  \"do\"      of a worker: kill (\"signal\": \"KILL\"), stop (SIGSTOP, \"for\": \"2s\"),\n"
    "            exit (\"code\": 1; only one that reports progress can),\n"
    "            slow (\"factor\": 4, \"for\": \"10s\")\n"
    "            of an agent: kill-agent, preempt (SIGTERM),\n"
    "            partition (\"for\": \"5s\", \"direction\": \"both\", \"in\" or \"out\": what\n"
    "            it and the server say is held up),\n"
    "            delay (\"by\": \"200ms\", \"for\": \"30s\")\n"
    "  \"when\"    \"step\": S (the first seen step >= S) or \"after\": \"1s\" (since all\n"
    "            workers run), and \"generation\": G [0]\n"
    "  \"on\"      \"rank\": R, \"local_rank\": L, \"node\": \"NAME\", or \"random\": \"rank\" or\n"
    "            \"node\", drawn by the plan's seed\n"
    "\n"
    "Examples:\n"
    "  muster chaos check '[{\"do\":\"kill\",\"when\":{\"step\":130},\"on\":{\"rank\":1}}]'\n"
    "      rank 1 is killed at step 130 of generation 0\n"
    "  muster chaos check plan.json\n"
    "\n"
    "Exit codes: 0 the plan is sound; 2 it is not, and one line says where.\n";

}  // namespace

int chaos_command(const Words& words) {
  const absl::StatusOr<SmallLine> line = parse_small("chaos", words, {});
  if (!line.ok()) return refuse(cat(line.status().message()));
  if (line->has("help")) return print(kHelp) ? 0 : 1;
  if (line->rest.empty() || line->rest[0] != "check") {
    return refuse(line->rest.empty()
                      ? "chaos: say `muster chaos check PLAN`"
                      : cat("chaos: unknown word '", line->rest[0], "'; did you mean check?"));
  }
  if (line->rest.size() < 2) return refuse("chaos check: give a PLAN, a file or JSON text");
  if (line->rest.size() > 2) return refuse_surplus("chaos", line->rest[2]);
  const absl::StatusOr<FaultPlan> plan = read_fault_plan(line->rest[1]);
  if (!plan.ok()) return refuse(cat("PLAN ", plan.status().message()));
  std::string text = cat("seed ", plan->seed, ", ", plan->faults.size(),
                         plan->faults.size() == 1 ? " fault\n" : " faults\n");
  for (const Fault& fault : plan->faults)
    text += cat("  ", describe_fault(fault), "\n");
  return print(text) ? 0 : 1;
}

}  // namespace muster::launcher
