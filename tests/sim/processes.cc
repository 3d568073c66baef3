// SPDX-License-Identifier: Apache-2.0
//
// The processes of a node: how they run, hang, hear signals and end.
#include <algorithm>

#include "tests/sim/node.h"

namespace muster::sim {

// What waits for a suspended one refers to it.
void Node::forget_processes() {
  for (const ProcessPtr& process : truth_.processes)
    process->when_awake.clear();
  truth_.processes.clear();
}

void Node::start_workers(const agent::StartWorkers& start) {
  forget_processes();
  for (const agent::WorkerPlan& plan : start.workers) {
    if (world_.chance(world_.options.exec_failure)) {
      agent::WorkerEnded ended;
      ended.local_rank = plan.local_rank;
      ended.order = ++order_;
      ended.status = {ExitStatus::Kind::kExecFailed, 2, false, "/bin/train: not found"};
      world_.disturbed(start.run, start.generation);
      later(0s, [this, ended] { post(ended); });
      later(0s, [this, rank = plan.local_rank] { post(agent::WorkerGone{rank}); });
      continue;
    }
    auto process = std::make_shared<Process>();
    process->node = truth_.index;
    process->life = truth_.life;
    process->run = start.run;
    process->generation = start.generation;
    process->rank = plan.rank;
    process->local_rank = plan.local_rank;
    process->pid = ++next_pid_;
    process->started = world_.clock.now();
    process->frozen = frozen_;
    process->ignores_term = world_.chance(world_.options.ignores_term);
    process->rest = world_.chance(world_.options.leaves_rest);
    process->reports = world_.chance(world_.options.reports);
    process->unkillable = world_.chance(world_.options.unkillable);
    truth_.processes.push_back(process);
    later(0s, [this, process] {
      process->spawn_told = true;
      post(agent::WorkerSpawned{process->local_rank, process->pid});
    });
    plan_natural_end(process);
  }
}

// As the real runner does: progress is read when a deadline is due, before the Tick.
void Node::sample_progress() {
  std::vector<RankProgress> progress;
  for (const ProcessPtr& process : truth_.processes) {
    if (!process->leader || !process->reports) continue;
    const Duration runs =
        std::min(world_.clock.now(), process->hangs_from.value_or(world_.clock.now())) -
        process->started;
    const auto steps = static_cast<std::uint64_t>(runs / 200ms);
    progress.push_back({process->rank, steps, steps / 16 * 16, 0s});
  }
  if (!progress.empty()) step(agent::ProgressSampled{std::move(progress)});
}

void Node::heed_stop_file(std::uint32_t local_rank) {
  for (const ProcessPtr& process : truth_.processes) {
    if (process->local_rank != local_rank || !process->leader || !process->reports) continue;
    if (process->dying || process->unkillable || process->hangs(world_.clock.now())) continue;
    process->dying = true;
    const ExitStatus status{ExitStatus::Kind::kExited, world_.rng.below(2) == 0 ? 0 : 143, false,
                            ""};
    later_awake(process, world_.between(10ms, 2s),
                [this, process, status] { end_leader(process, status, Ending::kTold); });
  }
}

// Some never come.
void Node::capture_stacks(const agent::CaptureStacks& order) {
  if (world_.chance(0.1)) return;
  agent::StacksCaptured captured;
  captured.number = order.number;
  for (const auto& worker : order.workers)
    captured.workers.push_back({worker.local_rank, "stacks", world_.chance(0.2)});
  later(world_.between(1ms, 4s), [this, captured] { post(captured); });
}

void Node::plan_natural_end(const ProcessPtr& process) {
  const Duration length = world_.between(500ms, world_.options.longest_work);
  const bool fails = world_.chance(world_.options.worker_failure);
  if (world_.options.hangs > 0 && world_.chance(world_.options.hangs)) {
    process->hangs_from = world_.clock.now() + length / 2;
    ++world_.checks.tally["workers that hang"];
  }
  later_awake(process, length, [this, process, fails] {
    if (!process->leader || process->dying || process->hangs_from) return;
    ExitStatus status;
    if (fails && world_.rng.below(2) == 0) {
      status = {ExitStatus::Kind::kSignaled, 11, false, ""};
    } else if (fails) {
      status.value = 3;
    }
    end_leader(process, status, fails ? Ending::kFailure : Ending::kDone);
  });
  if (process->rest) {
    later_awake(process, length + world_.between(0s, 8s), [this, process] {
      if (process->unkillable || !process->rest) return;
      process->rest = false;
      tell_gone(process);
    });
  }
}

void Node::later_awake(const ProcessPtr& process, Duration delay, std::function<void()> what) {
  later(delay, [process, what = std::move(what)] {
    if (!process->suspended) return what();
    process->when_awake.push_back(what);
  });
}

void Node::wake_process(const ProcessPtr& process) {
  process->suspended = false;
  std::vector<std::function<void()>> waiting;
  waiting.swap(process->when_awake);
  for (const auto& what : waiting)
    what();
}

bool Node::hangs() const {
  const Instant now = world_.clock.now();
  return std::any_of(truth_.processes.begin(), truth_.processes.end(),
                     [&](const auto& process) { return process->leader && process->hangs(now); });
}

void Node::kill_hung() {
  for (const ProcessPtr& process : truth_.processes) {
    if (!process->leader || process->unkillable || !process->hangs(world_.clock.now())) continue;
    end_leader(process, {ExitStatus::Kind::kSignaled, 9, false, ""}, Ending::kFailure);
  }
}

// As ranks in a collective do: at once, whatever the launcher knows of it.
void Node::peer_ended(const Process& peer) {
  for (const ProcessPtr& process : truth_.processes) {
    const bool is_peer = process->run == peer.run && process->generation == peer.generation;
    if (!is_peer || !process->leader || process->dying || process->unkillable) continue;
    if (process->hangs_from || !world_.chance(world_.options.peers)) continue;
    later_awake(process, world_.between(1ms, 20ms), [this, process] {
      if (!process->leader || process->dying) return;
      ++world_.checks.tally["workers that failed over a peer"];
      end_leader(process, {ExitStatus::Kind::kExited, 1, false, ""}, Ending::kPeer);
    });
  }
}

void Node::end_leader(const ProcessPtr& process, ExitStatus status, Ending why) {
  if (!process->leader) return;
  process->leader = false;
  world_.worker_ended(*process, why);
  agent::WorkerEnded ended;
  ended.local_rank = process->local_rank;
  ended.pid = process->pid;
  ended.status = std::move(status);
  ended.order = ++order_;
  ended.run = world_.clock.now() - process->started;
  later(0s, [this, ended] { post(ended); });
  tell_gone(process);
}

void Node::tell_gone(const ProcessPtr& process) {
  if (process->alive()) return;
  process->when_awake.clear();
  later(world_.between(0s, 2ms), [this, process] { post(agent::WorkerGone{process->local_rank}); });
}

void Node::kill(const ProcessPtr& process, Duration patience) {
  if (process->unkillable) {
    later(patience, [this, process] {
      if (!process->alive()) return;
      post(agent::WorkerUnkillable{process->local_rank, process->pid, "D"});
    });
    return;
  }
  const Ending why = process->dying ? Ending::kTold : Ending::kKilled;
  later(world_.between(100us, 5ms), [this, process, why] {
    if (process->rest) {
      process->rest = false;
      tell_gone(process);
    }
    end_leader(process, {ExitStatus::Kind::kSignaled, 9, false, ""}, why);
  });
}

void Node::signal_worker(const agent::SignalWorker& order) {
  for (const ProcessPtr& process : truth_.processes) {
    if (process->local_rank != order.local_rank || !process->alive()) continue;
    if (order.signal == 9) {
      const bool is_hang = !order.stops;
      if (order.scope == agent::SignalScope::kGroup || is_hang) kill(process, order.patience);
      continue;
    }
    if (order.signal == 19) {
      process->suspended = !process->unkillable;
      continue;
    }
    if (order.signal == 18) {
      wake_process(process);
      continue;
    }
    if (order.scope != agent::SignalScope::kLeader && !process->leader && process->rest) {
      if (process->ignores_term) continue;
      later_awake(process, world_.between(1ms, 100ms), [this, process] {
        if (!process->rest || process->unkillable) return;
        process->rest = false;
        tell_gone(process);
      });
    }
    if (!process->leader || process->ignores_term || process->dying || process->unkillable) {
      continue;
    }
    process->dying = true;
    ExitStatus status{ExitStatus::Kind::kSignaled, order.signal, false, ""};
    const std::uint64_t manner = world_.rng.below(5);
    const bool hears = !process->hangs(world_.clock.now());
    if (manner == 0 && hears) status = {};  // saves its work and ends well
    if (manner == 1 && hears) status = {ExitStatus::Kind::kExited, 143, false, ""};
    later_awake(process, world_.between(1ms, 800ms),
                [this, process, status] { end_leader(process, status, Ending::kTold); });
  }
}

void World::worker_ended(const Process& process, Ending why) {
  if (why == Ending::kFailure || why == Ending::kKilled) {
    disturbed(process.run, process.generation);
  }
  if (why == Ending::kDone || options.peers == 0) return;
  for (const auto& node : nodes_)
    node->peer_ended(process);
}

}  // namespace muster::sim
