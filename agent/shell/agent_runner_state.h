// SPDX-License-Identifier: Apache-2.0
//
// The insides of AgentRunner, for its three parts: agent_runner.cc makes events of what happens,
// agent_runner_actions.cc carries actions out, agent_runner_end.cc brings it to its end.
//
// Thread rule: io thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/shell/agent_runner.h"
#include "agent/shell/event_writer.h"
#include "agent/shell/failure_block.h"
#include "agent/shell/guardian.h"
#include "agent/shell/log_keeper.h"
#include "agent/shell/master_port.h"
#include "agent/shell/run_directory.h"
#include "agent/shell/stack_capture.h"
#include "agent/shell/termination_log.h"
#include "agent/shell/worker_set.h"

namespace muster::agent {

inline std::uint64_t random_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

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
        stacks(context, options.search_path),
        machine(std::move(config)) {
    if (!options.events.empty()) events.emplace(options.events, node, job);
    workers.emplace(WorkerSetParts{io, options, node, console, log, directory,
                                   [this](Event event) { post(std::move(event)); }});
  }

  void watch_world();
  void signal_arrived(int number);
  void resize_terminals();
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
  void operator()(const CaptureStacks& order);
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
  boost::asio::steady_timer deadline_timer;
  boost::asio::steady_timer connect_timer;
  std::optional<Instant> armed;  // what deadline_timer waits for
  DeviceWatch device_watch;
  StackCapture stacks;
  Agent machine;
  std::optional<WorkerSet> workers;
  std::unique_ptr<SignalWatch> signal_watch;
  std::unique_ptr<GuardianWatch> guardian_watch;

  std::deque<Event> inbox;
  bool stepping = false;
  bool link_is_up = false;
  std::uint64_t link_life = 0;  // of streams: what is heard of an earlier one counts no more
  bool connect_pending = false;
  std::uint64_t heard_told = 0;  // Console::heard()
  bool finished = false;
  bool told_to_stop = false;  // by a signal
  bool hurried = false;       // … which is why it ends
  RunResult result;
  RunId run;  // as far as it is known
  std::string last_words;
  std::optional<Failure> noted_cause;  // of the generation that runs or ended last
  std::function<void(const RunResult&)> done;
};

}  // namespace muster::agent
