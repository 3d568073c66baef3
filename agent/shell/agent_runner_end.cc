// SPDX-License-Identifier: Apache-2.0
//
// The end of an agent: termination log, the last output, the failure block.
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "agent/shell/agent_runner_state.h"
#include "agent/shell/error_file.h"

namespace muster::agent {

namespace {

// How long the last output may take when all workers are gone: a console that is read gets all of
// it, one that blocks does not hold the exit up for longer than its patience. Whoever sent us a
// signal does not want to wait.
constexpr Duration kLastOutput = 500ms;
constexpr Duration kPatience = 5s;
constexpr Duration kNoLimit = std::chrono::hours(24 * 365);
constexpr Duration kHurriedPatience = 250ms;
constexpr Duration kHurriedLimit = 500ms;

bool is_failure(OutcomeKind kind) {
  return kind == OutcomeKind::kFailed || kind == OutcomeKind::kNoProgress ||
         kind == OutcomeKind::kJoinTimeout;
}

}  // namespace

void AgentRunner::State::write_termination(const TerminationFacts& facts) {
  const absl::Status status = termination.write(facts);
  if (!status.ok()) log.say(Severity::kWarning, std::string(status.message()));
}

void AgentRunner::State::end_termination() {
  if (result.exit_code == 0) return termination.clear();
  const std::optional<Outcome>& outcome = result.outcome;
  TerminationFacts facts{job,        run,         node, result.exit_code, result.exit_class,
                         last_words, std::nullopt};
  if (outcome) {
    facts.first_cause = outcome->first_cause;
    if (facts.text.empty()) facts.text = outcome->text;
  } else if (noted_cause && !told_to_stop) {
    facts.first_cause = noted_cause;  // this node's own end came before the job's
  }
  write_termination(facts);
}

void AgentRunner::State::operator()(const Finish& order) {
  finished = true;
  result = {order.exit_code, order.exit_class, order.outcome};
  last_words = order.text;
  hurried |= order.exit_class == ExitClass::kSignal ||
             (order.exit_class == ExitClass::kUnfit && told_to_stop);
  deadline_timer.cancel();
  connect_timer.cancel();
  master_port.release();
  end_termination();
  // Workers' own last lines first, then ours.
  workers->finish(kLastOutput, [self = weak_from_this()] {
    if (const auto state = self.lock()) state->flush_console(&State::finish_output);
  });
}

void AgentRunner::State::flush_console(void (State::*next)()) {
  console.flush(hurried ? kHurriedPatience : kPatience, hurried ? kHurriedLimit : kNoLimit,
                [self = weak_from_this(), next] {
                  if (const auto state = self.lock()) (state.get()->*next)();
                });
}

// A signal while only the console is waited for ends that wait; so does the guardian's end.
void AgentRunner::State::hurry(const Event& event) {
  const auto* signal = std::get_if<SignalReceived>(&event);
  const bool passed = signal != nullptr && !stops(signal->signal);
  if (passed || (signal == nullptr && !std::holds_alternative<GuardianLost>(event))) return;
  hurried = true;
  console.give_up();
}

void AgentRunner::State::finish_output() {
  const std::optional<Outcome>& outcome = result.outcome;
  if (const std::string missing = console.missing(); !missing.empty()) {
    log.say(Severity::kWarning, "nobody reads the console: " + missing + " are not shown");
  }
  if (const std::string missing = console.missing_in_logs(); !missing.empty()) {
    log.say(Severity::kWarning, missing);
  }
  if (outcome && is_failure(outcome->kind)) {
    const Failure cause = outcome->first_cause.value_or(Failure{});
    if (!options.own_error_file.empty() && !cause.error_file.empty()) {
      const absl::Status status = write_whole(options.own_error_file, cause.error_file);
      if (!status.ok()) log.say(Severity::kWarning, std::string(status.message()));
    }
    // Last of all that is said.
    const std::string block =
        failure_block(job, *outcome, result.exit_code, directory.made_run_path());
    log.record(Severity::kError, block);
    console.write_stderr(block);
  } else if (result.exit_class == ExitClass::kUnfit && noted_cause) {
    const std::string block = unfit_block(job, node, last_words, *noted_cause, result.exit_code,
                                          directory.made_run_path());
    log.record(Severity::kError, block);
    console.write_stderr(block);
  } else if (!last_words.empty()) {
    log.say(result.exit_code == 0 ? Severity::kInfo : Severity::kError, last_words);
  }
  flush_console(&State::last_output_taken);
}

void AgentRunner::State::last_output_taken() {
  signal_watch.reset();
  guardian_watch.reset();
  workers.reset();  // removes the scratch folder
  events.reset();   // writes what a slow reader of the events left
  const auto call = std::exchange(done, nullptr);
  const RunResult end = result;
  call(end);  // may destroy us
}

}  // namespace muster::agent
