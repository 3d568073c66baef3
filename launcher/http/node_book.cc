// SPDX-License-Identifier: Apache-2.0
#include "launcher/http/node_book.h"

#include <chrono>
#include <utility>
#include <variant>

#include "agent/shell/failure_block.h"

namespace muster::http {
namespace {

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::string with_number(const char* before, Generation generation, const char* after) {
  return before + std::to_string(generation) + after;
}

}  // namespace

NodeBook::NodeBook(NodeName node, std::string server)
    : node_(std::move(node)), server_(std::move(server)) {}

void NodeBook::note(const JobEvent& event) {
  const bool is_own = event.node == node_;
  if (std::holds_alternative<event::GenerationFormed>(event.body)) generation_ = event.generation;
  std::visit(
      [&](const auto& body) {
        using Body = std::decay_t<decltype(body)>;
        if constexpr (std::is_same_v<Body, event::NodeJoined>) {
          if (!is_own) return;
          spare_ = body.spare;
          if (stage_ == Stage::kLooking) stage_ = Stage::kJoined;
        } else if constexpr (std::is_same_v<Body, event::WorkerStarted>) {
          if (is_own) ++workers_;
        } else if constexpr (std::is_same_v<Body, event::WorkerEnded>) {
          if (is_own) on(body);
        } else if constexpr (std::is_same_v<Body, event::GenerationRunning>) {
          stage_ = Stage::kRunning;
        } else if constexpr (std::is_same_v<Body, event::JobFinished>) {
          stage_ = Stage::kOver;
          why_ = std::string("the job is over: ") + to_word(body.outcome.kind);
          goodput_ = body.outcome.goodput;
        } else if constexpr (requires { on(body); }) {
          on(body);
        }
      },
      event.body);
}

void NodeBook::on(const event::JobStarted& event) {
  max_restarts_ = event.max_restarts;
}

void NodeBook::on(const event::GenerationFormed& event) {
  ++formed_[to_word(event.reason)];
  world_size_ = event.world_size;
  nodes_ = event.nodes.size();
  stage_ = Stage::kStarting;
  spare_ = true;
  for (const MemberRanks& member : event.nodes) {
    if (member.node == node_) spare_ = false;
  }
}

void NodeBook::on(const event::GenerationFailed& event) {
  ++failures_[to_word(event.first_cause.kind)];
  stage_ = Stage::kStopping;
  why_ = "its workers are being stopped: " + agent::failure_place(event.first_cause) + ": " +
         agent::failure_words(event.first_cause);
}

void NodeBook::on(const event::RestartScheduled& event) {
  restarts_used_ = event.restarts_used;
  max_restarts_ = event.max_restarts;
}

void NodeBook::on(const event::Recovered& event) {
  ++recoveries_;
  recovery_s_["detect"] += seconds(event.detect);
  recovery_s_["stop"] += seconds(event.stop);
  recovery_s_["form"] += seconds(event.form);
  recovery_s_["spawn"] += seconds(event.spawn);
  last_recovery_s_ = seconds(event.total);
}

void NodeBook::on(const event::WorkerEnded& event) {
  --workers_;
  const char* const how = event.torn_down        ? "torn_down"
                          : event.signal         ? "signal"
                          : event.exit_code == 0 ? "success"
                                                 : "exit";
  ++exits_[how];
}

std::string NodeBook::unready() const {
  switch (stage_) {
    case Stage::kLooking: return "looking for the server at " + server_;
    case Stage::kJoined: return spare_ ? "" : "joined; the job is not formed yet";
    case Stage::kStarting:
      return spare_ ? "" : with_number("generation ", *generation_, " is being started");
    case Stage::kRunning: return "";
    case Stage::kStopping: return spare_ ? "" : why_;
    case Stage::kOver: return why_;
  }
  return "";
}

void NodeBook::render(MetricsText& out) const {
  out.gauge("muster_node_ready", "1: the workers of this node run, or it waits as a spare");
  out.sample(unready().empty() ? 1 : 0);
  out.gauge("muster_server_connected", "1: this node has a stream to the rendezvous server");
  out.sample(connected_ ? 1 : 0);
  out.gauge("muster_workers", "Workers of this node that run");
  out.sample(static_cast<double>(workers_));
  if (generation_) {
    out.gauge("muster_generation", "Number of the job's newest generation, from 0");
    out.sample(static_cast<double>(*generation_));
    out.gauge("muster_world_size", "Ranks of that generation");
    out.sample(world_size_);
    out.gauge("muster_generation_nodes", "Nodes of that generation");
    out.sample(static_cast<double>(nodes_));
  }
  out.counter("muster_restarts_total", "Restarts charged to --max-restarts, of the whole job");
  out.sample(restarts_used_);
  out.gauge("muster_max_restarts", "--max-restarts");
  out.sample(max_restarts_);
  out.counter("muster_generations_formed_total", "Generations that this node saw formed, by cause");
  for (const auto& [reason, count] : formed_)
    out.sample(static_cast<double>(count), {{"reason", reason}});
  out.counter("muster_generation_failures_total", "Failures that this node saw, by first cause");
  for (const auto& [kind, count] : failures_)
    out.sample(static_cast<double>(count), {{"kind", kind}});
  out.counter("muster_worker_exits_total", "Ends of this node's workers");
  for (const auto& [how, count] : exits_)
    out.sample(static_cast<double>(count), {{"how", how}});
  out.counter("muster_recoveries_total", "Times that all workers ran again after a failure");
  out.sample(static_cast<double>(recoveries_));
  out.counter("muster_recovery_seconds_total", "Time that recoveries took, by part");
  for (const auto& [phase, sum] : recovery_s_)
    out.sample(sum, {{"phase", phase}});
  if (recoveries_ > 0) {
    out.gauge("muster_last_recovery_seconds", "From the last failure to all workers running");
    out.sample(last_recovery_s_);
  }
  if (goodput_) {
    out.gauge("muster_goodput_ratio", "Share of the time of a job that is over that was not lost");
    out.sample(*goodput_);
  }
}

}  // namespace muster::http
