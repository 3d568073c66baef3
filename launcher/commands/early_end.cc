// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/early_end.h"

#include "agent/shell/termination_log.h"
#include "launcher/commands/agent_config.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

ExitClass class_of(int exit_code) {
  switch (exit_code) {
    case 2: return ExitClass::kUsage;
    case 75: return ExitClass::kJoinTimeout;
    case 126:
    case 127: return ExitClass::kWorker;
    default: return exit_code > 128 ? ExitClass::kSignal : ExitClass::kInternal;
  }
}

}  // namespace

void note_early_end(const RunPlan& plan, const EarlyEnd& end) {
  agent::TerminationLog log(termination_log_of(plan.options, plan.environment));
  agent::TerminationFacts facts;
  facts.job = plan.job;
  facts.node = plan.node;
  facts.exit_code = end.exit_code;
  facts.exit_class = class_of(end.exit_code);
  facts.text = end.text;
  const absl::Status status = log.write(facts);
  if (!status.ok()) say(cat(status.message()));
}

int end_early(const RunPlan& plan, const EarlyEnd& end) {
  say(end.text);
  note_early_end(plan, end);
  return end.exit_code;
}

}  // namespace muster::launcher
