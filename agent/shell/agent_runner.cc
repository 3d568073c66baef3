// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/agent_runner.h"

#include <algorithm>
#include <csignal>
#include <deque>
#include <functional>
#include <random>
#include <unistd.h>
#include <utility>
#include <variant>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/trace.h"
#include "agent/shell/error_file.h"
#include "agent/shell/event_writer.h"
#include "agent/shell/failure_block.h"
#include "agent/shell/guardian.h"
#include "agent/shell/io_loop.h"
#include "agent/shell/log_keeper.h"
#include "agent/shell/master_port.h"
#include "agent/shell/run_directory.h"
#include "agent/shell/termination_log.h"
#include "agent/shell/worker_set.h"
#include "proto/base/check.h"

namespace muster::agent {

namespace {

using boost::asio::steady_timer;
using boost::system::error_code;

// How long the last output may take when all workers are gone: a console that is read gets all of
// it, one that blocks does not hold the exit up for longer than its patience. Whoever sent us a
// signal does not want to wait.
constexpr Duration kLastOutput = 500ms;
constexpr Duration kPatience = 5s;
constexpr Duration kNoLimit = std::chrono::hours(24 * 365);
constexpr Duration kHurriedPatience = 250ms;
constexpr Duration kHurriedLimit = 500ms;

std::uint64_t random_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

bool is_failure(OutcomeKind kind) {
  return kind == OutcomeKind::kFailed || kind == OutcomeKind::kNoProgress ||
         kind == OutcomeKind::kJoinTimeout;
}

}  // namespace

struct AgentRunner::State : std::enable_shared_from_this<AgentRunner::State> {
  State(boost::asio::io_context& context, RunnerOptions given, AgentConfig config,
        std::unique_ptr<ServerLink> server)
      : io(context),
        options(std::move(given)),
        job(config.spec.job),
        node(config.node.name),
        passed_on(config.forward_signals),
        link(std::move(server)),
        console(context, options.console),
        log(options.log_level, node, [this](std::string_view line) { console.say(line); }),
        directory(options.log_dir, job,
                  [this](const std::string& path) { log.attach(path + "/agent.log"); }),
        keeper(context, options.log_keep,
               [this](const std::string& line) { log.record(Severity::kInfo, line); }),
        master_port(random_seed()),
        termination(options.termination_log),
        deadline_timer(context),
        connect_timer(context),
        device_watch(context, options.devices),
        machine(std::move(config)) {
    if (!options.events.empty()) events.emplace(options.events, node, job);
    workers.emplace(WorkerSetParts{io, options, node, console, log, directory,
                                   [this](Event event) { post(std::move(event)); }});
  }

  void watch_world();
  void signal_arrived(int number);
  bool stops(int signal) const;
  void post(Event event);
  void step(const Event& event);
  void carry_out(std::vector<Action> actions);
  void arm_deadline();
  void deadline_passed();
  void open_link();
  void link_said(ServerMessage message);
  void heard(Event event);
  void after_a_look(std::function<void()> then);
  void flush_console(void (State::*next)());
  void finish_output();
  void last_output_taken();
  void write_termination(const TerminationFacts& facts);
  void end_termination();
  void hurry(const Event& event);

  // One action each.
  void operator()(const Connect& order);
  void operator()(const Disconnect&);
  void operator()(Send& order);
  void operator()(const HoldMasterPort& order);
  void operator()(const ReleaseMasterPort&) { master_port.release(); }
  void operator()(const StartWorkers& order);
  void operator()(const SignalWorker& order) { workers->signal(order); }
  void operator()(const WriteStopFile& order) { workers->write_stop_file(order.local_rank); }
  void operator()(const SuspendGuardian&) {
    if (options.guardian) suspend_guardian(*options.guardian);
  }
  void operator()(const ResumeGuardian&) {
    if (options.guardian) resume_guardian(*options.guardian);
  }
  void operator()(const StartFaultClock& order) {
    workers->start_fault_clock(order.generation, order.elapsed);
  }
  void operator()(const AwaitDevices& order);
  void operator()(const Emit& order);
  void operator()(const Say& order) { log.say(order.severity, order.text); }
  void operator()(const SayLingering& order) {
    log.say(Severity::kWarning,
            lingering_line(order.rank, workers->below(order.local_rank), order.grace));
  }
  void operator()(const NoteFirstCause& order);
  void operator()(const Finish& order);

  boost::asio::io_context& io;
  const RunnerOptions options;
  const JobId job;
  const NodeName node;
  const std::vector<int> passed_on;  // signals that stop nothing
  std::unique_ptr<ServerLink> link;
  Console console;
  LogLines log;
  RunDirectory directory;
  LogKeeper keeper;
  MasterPort master_port;
  std::optional<EventWriter> events;
  TerminationLog termination;
  steady_timer deadline_timer;
  steady_timer connect_timer;
  std::optional<Instant> armed;  // what deadline_timer waits for
  DeviceWatch device_watch;
  Agent machine;
  std::optional<WorkerSet> workers;
  std::unique_ptr<SignalWatch> signal_watch;
  std::unique_ptr<GuardianWatch> guardian_watch;

  std::deque<Event> inbox;
  bool stepping = false;
  bool link_is_up = false;
  std::uint64_t link_life = 0;  // of streams: what is heard of an earlier one counts no more
  bool connect_pending = false;
  bool finished = false;
  bool told_to_stop = false;  // by a signal
  bool hurried = false;       // … which is why it ends
  RunResult result;
  RunId run;  // as far as it is known
  std::string last_words;
  std::function<void(const RunResult&)> done;
};

// ------------------------------------------------------------------ the world becomes events

void AgentRunner::State::watch_world() {
  if (!options.signals.empty()) {
    signal_watch = std::make_unique<SignalWatch>(
        io, options.signals, [this](const SignalInfo& in) { signal_arrived(in.signal); });
  }
  if (options.guardian) {
    guardian_watch = std::make_unique<GuardianWatch>(
        io, *options.guardian,
        [this](std::string reason) { post(GuardianLost{std::move(reason)}); });
  }
}

// All that are taken stop the job, but for these.
bool AgentRunner::State::stops(int signal) const {
  if (signal == SIGTSTP || signal == SIGCONT || signal == SIGWINCH) return false;
  return std::find(passed_on.begin(), passed_on.end(), signal) == passed_on.end();
}

void AgentRunner::State::signal_arrived(int number) {
  told_to_stop |= stops(number);
  if (number == SIGWINCH) console.resize_terminals();
  post(SignalReceived{number});
}

// Carrying out an action may make an event at once (a port is held): it waits its turn, so that
// all actions of one step are done before the next step.
void AgentRunner::State::post(Event event) {
  if (finished) return hurry(event);
  inbox.push_back(std::move(event));
  if (stepping) return;
  stepping = true;
  while (!inbox.empty() && !finished) {
    const Event next = std::move(inbox.front());
    inbox.pop_front();
    step(next);
  }
  stepping = false;
  arm_deadline();
}

void AgentRunner::State::step(const Event& event) {
  if (!log.debugs()) return carry_out(machine.step(event, IoLoop::now()));
  const Phase before = machine.view().phase;
  log.debug(trace(event));
  std::vector<Action> actions = machine.step(event, IoLoop::now());
  const Phase after = machine.view().phase;
  if (after != before) log.debug(std::string(phase_word(before)) + " -> " + phase_word(after));
  for (const Action& action : actions)
    log.debug(trace(action));
  carry_out(std::move(actions));
}

void AgentRunner::State::carry_out(std::vector<Action> actions) {
  for (Action& action : actions)
    std::visit(*this, action);
}

void AgentRunner::State::arm_deadline() {
  const std::optional<Instant> next = finished ? std::nullopt : machine.next_deadline();
  if (next == armed) return;
  armed = next;
  if (!next) {
    deadline_timer.cancel();
    return;
  }
  deadline_timer.expires_at(steady_timer::time_point(
      std::chrono::duration_cast<steady_timer::duration>(next->since_origin)));
  deadline_timer.async_wait([self = weak_from_this()](const error_code& error) {
    if (error) return;
    const auto state = self.lock();
    if (!state) return;
    // Facts that arrived come before deadlines (a stalled process finds both at once).
    boost::asio::post(state->io, [self] {
      const auto late = self.lock();
      if (!late) return;
      late->after_a_look([self] {
        if (const auto later = self.lock()) later->deadline_passed();
      });
    });
  });
}

void AgentRunner::State::deadline_passed() {
  if (finished) return;
  const Instant now = IoLoop::now();
  armed.reset();
  if (machine.next_deadline() && *machine.next_deadline() <= now) {
    auto progress = workers->sample(now);
    if (!progress.empty()) post(ProgressSampled{std::move(progress)});
    return post(Tick{});
  }
  arm_deadline();
}

void AgentRunner::State::open_link() {
  ++link_life;
  ServerLink::Callbacks callbacks;
  callbacks.up = [self = weak_from_this()] {
    const auto state = self.lock();
    if (!state) return;
    state->link_is_up = true;
    state->heard(LinkUp{});
  };
  callbacks.said = [self = weak_from_this()](ServerMessage message) {
    if (const auto state = self.lock()) state->link_said(std::move(message));
  };
  callbacks.down = [self = weak_from_this()](std::string reason, bool speaks_muster) {
    const auto state = self.lock();
    if (!state) return;
    state->link_is_up = false;
    if (state->options.store.link_down) state->options.store.link_down();
    state->heard(LinkDown{std::move(reason), speaks_muster});
  };
  callbacks.store_said = [self = weak_from_this()](const StoreReply& reply) {
    const auto state = self.lock();
    if (state && state->options.store.store_said) state->options.store.store_said(reply);
  };
  link->open(std::move(callbacks));
}

void AgentRunner::State::link_said(ServerMessage message) {
  if (std::holds_alternative<JoinAccepted>(message.body) && options.store.link_up) {
    options.store.link_up(link.get());
  }
  heard(ServerSaid{std::move(message)});
}

// A stop order may be there because ranks elsewhere failed over a worker of ours that ended before
// it: that end must be read first, or it would be taken for what the order did.
void AgentRunner::State::heard(Event event) {
  after_a_look([self = weak_from_this(), life = link_life, event = std::move(event)] {
    const auto state = self.lock();
    if (state && state->link_life == life) state->post(event);
  });
}

// After whatever the loop's next look at descriptors finds; those who call this stay in order. Two
// turns, since what is posted comes before what that look finds.
void AgentRunner::State::after_a_look(std::function<void()> then) {
  boost::asio::post(io, [this, self = weak_from_this(), then = std::move(then)] {
    if (const auto state = self.lock()) boost::asio::post(io, then);
  });
}

// ------------------------------------------------------------------ actions

void AgentRunner::State::operator()(const Connect& order) {
  if (order.delay <= Duration{0}) return open_link();
  connect_pending = true;
  connect_timer.expires_after(order.delay);
  connect_timer.async_wait([self = weak_from_this()](const error_code& error) {
    const auto state = self.lock();
    // A wait that was over when it was called off comes without an error.
    if (error || !state || !state->connect_pending || state->finished) return;
    state->connect_pending = false;
    state->open_link();
  });
}

void AgentRunner::State::operator()(const Disconnect&) {
  ++link_life;
  connect_pending = false;
  connect_timer.cancel();
  if (link_is_up && options.store.link_down) options.store.link_down();
  link_is_up = false;
  link->close();
}

void AgentRunner::State::operator()(Send& order) {
  if (!link_is_up) {
    return log.record(Severity::kInfo, "a message was not sent: the link is down");
  }
  if (auto* join = std::get_if<Join>(&order.message.body); join != nullptr && options.dialed_addr) {
    if (join->node.dialed_addr.empty()) join->node.dialed_addr = options.dialed_addr();
  }
  link->send(std::move(order.message));
}

void AgentRunner::State::operator()(const HoldMasterPort& order) {
  const auto port = master_port.hold(order.low, order.high);
  if (port.ok()) return post(MasterPortHeld{order.attempt, *port});
  post(MasterPortFailed{order.attempt, std::string(port.status().message())});
}

void AgentRunner::State::operator()(const StartWorkers& order) {
  directory.set_run(order.run);
  workers->start(order);
  keeper.run_started(directory.job_path(), directory.run_path());
}

void AgentRunner::State::operator()(const AwaitDevices& order) {
  device_watch.await(
      order.pids, order.patience,
      [this, number = order.number](const std::string& holder, const std::string& trouble) {
        if (!trouble.empty()) log.record(Severity::kInfo, "cannot look at GPUs: " + trouble);
        post(DevicesFreed{number, holder});
      });
}

void AgentRunner::State::operator()(const Emit& order) {
  if (!order.run.empty()) run = order.run;
  if (!events) return;
  const absl::Status status = events->write(order.run, order.event);
  if (!status.ok()) log.say(Severity::kWarning, std::string(status.message()));
}

void AgentRunner::State::operator()(const NoteFirstCause& order) {
  log.record(Severity::kWarning,
             "first cause: " + failure_place(order.failure) + ": " + failure_words(order.failure));
  write_termination({job, run, node, std::nullopt, std::nullopt,
                     failure_place(order.failure) + ": " + failure_words(order.failure),
                     order.failure});
}

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
  }
  write_termination(facts);
}

// ------------------------------------------------------------------ the end

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

// ------------------------------------------------------------------ the class

AgentRunner::AgentRunner(boost::asio::io_context& io, RunnerOptions options, AgentConfig config,
                         std::unique_ptr<ServerLink> link)
    : state_(std::make_shared<State>(io, std::move(options), std::move(config), std::move(link))) {}

AgentRunner::~AgentRunner() {
  state_->finished = true;
  state_->deadline_timer.cancel();
  state_->connect_timer.cancel();
  state_->workers.reset();
}

void AgentRunner::run(std::function<void(const RunResult&)> done) {
  MUSTER_CHECK(!state_->done);
  state_->done = std::move(done);
  state_->watch_world();
  state_->post(Started{});
}

void AgentRunner::signal(int number) {
  state_->signal_arrived(number);
}

void AgentRunner::resize_terminals() {
  state_->console.resize_terminals();
}

AgentView AgentRunner::view() const {
  return state_->machine.view();
}

}  // namespace muster::agent
