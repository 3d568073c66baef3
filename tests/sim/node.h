// SPDX-License-Identifier: Apache-2.0
//
// One node of the simulated world: the host of an Agent, as agent/shell is in the real one, and
// the processes that it starts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/agent.h"
#include "tests/sim/checks.h"
#include "tests/sim/world.h"

namespace muster::sim {

class Node {
 public:
  Node(World& world, std::size_t index);
  ~Node() { forget_processes(); }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  void start_agent();
  // kill -9: the agent is gone at once, its workers a moment later (guardian).
  void kill_agent();
  void signal_agent(int signal);
  void suspend(Duration length);  // SIGTSTP now, SIGCONT then
  void freeze(Duration length);
  void leap(Duration length);  // of its clock
  bool hangs() const;          // a worker does
  void kill_hung();
  // One of its generation ended: the ranks here may notice, and fail.
  void peer_ended(const Process& peer);

  void link_down(const StreamPtr& stream, const std::string& reason);
  void said(const StreamPtr& stream, ServerMessage message);

  bool runs() const { return agent_ != nullptr; }
  bool ever_ran() const { return truth_.life > 0; }
  // Awake long enough to have done what was due while it slept.
  bool settled() const { return !frozen_ && world_.clock.now() >= awake_at_ + 100ms; }
  const StreamPtr& stream() const { return stream_; }
  const std::vector<ProcessPtr>& processes() const { return truth_.processes; }
  const NodeTruth& truth() const { return truth_; }
  Instant last_answer() const { return last_answer_; }
  std::string state() const;

 private:
  Instant own_now() const { return world_.clock.now() + truth_.ahead; }
  void post(agent::Event event);  // to the agent, unless it is frozen
  void step(const agent::Event& event);
  void carry_out(agent::Action&& action);
  void arm_timer(bool ticked);
  void wake();
  void connect(Duration delay);
  void dial(std::uint64_t token);
  void hold_port(Attempt attempt);
  void forget_processes();
  void start_workers(const agent::StartWorkers& start);
  void sample_progress();
  void heed_stop_file(std::uint32_t local_rank);
  void capture_stacks(const agent::CaptureStacks& order);
  void plan_natural_end(const ProcessPtr& process);
  void signal_worker(const agent::SignalWorker& order);
  void kill(const ProcessPtr& process, Duration patience);
  void end_leader(const ProcessPtr& process, ExitStatus status, Ending why);
  void tell_gone(const ProcessPtr& process);
  // What a process does by itself: then, or when it goes on.
  void later_awake(const ProcessPtr& process, Duration delay, std::function<void()> what);
  static void wake_process(const ProcessPtr& process);
  void finish(const agent::Finish& finish);
  // Runs `what` later if the same agent process is still there.
  void later(Duration delay, std::function<void()> what);

  World& world_;
  NodeTruth truth_;
  std::unique_ptr<agent::Agent> agent_;
  StreamPtr stream_;
  std::uint64_t connect_token_ = 0;
  std::uint64_t timer_ = 0;
  int spins_ = 0;
  int attempt_ = 0;  // of its scheduler
  bool frozen_ = false;
  Instant awake_at_;
  std::vector<agent::Event> held_;  // while frozen
  std::uint64_t order_ = 0;
  std::uint32_t ports_ = 0;  // held so far
  std::int64_t next_pid_ = 100;
  Instant last_answer_;
};

}  // namespace muster::sim
