// SPDX-License-Identifier: Apache-2.0
//
// Planted bugs: answers given twice, assignments that are wrong alike for all, and rules of the
// contract that are told and not kept.
#include <string>

#include "tests/sim/planted_tools.h"

namespace muster::sim::planting {
namespace {

void add_member(Prepare& prepare) {
  Assignment& told = prepare.assignment;
  MemberRanks more = told.members.back();
  more.node = "nobody";
  ++more.group_rank;
  more.first_rank = told.world_size;
  more.count = 1;
  ++told.world_size;
  told.members.push_back(more);
}

void drop_member(Prepare& prepare) {
  Assignment& told = prepare.assignment;
  if (told.members.size() < 2) return;
  told.world_size -= told.members.back().count;
  told.members.pop_back();
}

void change_policy(Heard& event, void (*change)(JobPolicy&)) {
  auto* said = std::get_if<rendezvous::AgentSaid>(&*event);
  auto* join = said == nullptr ? nullptr : std::get_if<Join>(&said->message.body);
  if (join != nullptr) change(join->spec.policy);
}

// Tells of `node` what does not come true, in the run that the step is about.
void tell_left(Actions& actions, const NodeName& node, event::NodeLeft::Why why) {
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const auto* persist = std::get_if<rendezvous::Persist>(&actions[i]);
    if (persist == nullptr) continue;
    JobEvent left;
    left.node = node;
    left.body = event::NodeLeft{why};
    const rendezvous::Emit emit{persist->record.spec.job, persist->record.run, left};
    actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(i) + 1, emit);
    return;
  }
}

void confine_in_words(Planted& /*planted*/, Actions& actions) {
  NodeName blamed;
  each_told<event::GenerationFailed>(actions,
                                     [&](const auto& failed) { blamed = failed.first_cause.node; });
  if (!blamed.empty()) tell_left(actions, blamed, event::NodeLeft::Why::kQuarantined);
}

void restart_for_drain(Planted& planted, Heard& event) {
  auto* asked = std::get_if<rendezvous::OperatorAsked>(&*event);
  planted.whom.clear();
  if (asked == nullptr) return;
  const auto* drain = std::get_if<rendezvous::DrainNode>(&asked->order);
  if (drain == nullptr) return;
  planted.whom = drain->node;
  asked->order = rendezvous::RestartJob{};
}

// As if who failed over a peer had failed before everything.
void age_followers(Planted&, Heard& event) {
  auto* said = event ? std::get_if<rendezvous::AgentSaid>(&*event) : nullptr;
  auto* exited = said != nullptr ? std::get_if<WorkerExited>(&said->message.body) : nullptr;
  if (exited != nullptr && exited->status.value == 1) exited->age = 1h;
}

// As if every crash had been the agent's signal.
void excuse_crashes(Planted&, Heard& event) {
  auto* said = event ? std::get_if<rendezvous::AgentSaid>(&*event) : nullptr;
  auto* exited = said != nullptr ? std::get_if<WorkerExited>(&said->message.body) : nullptr;
  if (exited != nullptr && exited->status.value == 11) exited->agent_signaled = true;
}

void tell_drained(Planted& planted, Actions& actions) {
  if (planted.whom.empty()) return;
  tell_left(actions, planted.whom, event::NodeLeft::Why::kDrained);
  planted.whom.clear();
}

// Gives every charge for a lost node back, in all that is said and written.
std::uint32_t without(std::uint32_t used, std::uint64_t back) {
  return back < used ? used - static_cast<std::uint32_t>(back) : 0;
}

void give_back(Planted& planted, Actions& actions) {
  bool lost = false;
  each_told<event::GenerationFailed>(actions, [&](const auto& failed) {
    lost = failed.first_cause.kind == FailureKind::kNodeLost;
  });
  each_told<event::RestartScheduled>(actions, [&](auto& restart) {
    if (!lost || !restart.charged) return;
    restart.charged = false;
    ++planted.count;
  });
  for (rendezvous::Action& action : actions) {
    if (auto* persist = std::get_if<rendezvous::Persist>(&action)) {
      std::uint32_t& used = persist->record.restarts_used;
      used = without(used, planted.count);
    } else if (auto* restart = told<event::RestartScheduled>(action)) {
      restart->restarts_used = without(restart->restarts_used, planted.count);
    } else if (auto* prepare = sent<Prepare>(action)) {
      std::uint32_t& used = prepare->assignment.restarts_used;
      used = without(used, planted.count);
    }
  }
}

void know_given_back(Planted& planted, Records& records) {
  for (rendezvous::RunRecord& run : records)
    run.job.restarts_used = without(run.job.restarts_used, planted.count);
}

void start_the_same_again(Planted& planted, const NodeTruth& node, const agent::Event&,
                          AgentActions& actions) {
  for (agent::Action& action : actions) {
    auto* start = std::get_if<agent::StartWorkers>(&action);
    if (start == nullptr) continue;
    const auto last = planted.started.find(node.index);
    if (last != planted.started.end() && last->second.run == start->run) {
      start->generation = last->second.generation;
    }
    planted.started[node.index] = *start;
  }
}

void forget_restarts(Planted&, const NodeTruth&, const agent::Event&, AgentActions& actions) {
  for (agent::Action& action : actions) {
    auto* start = std::get_if<agent::StartWorkers>(&action);
    if (start == nullptr) continue;
    for (agent::WorkerPlan& plan : start->workers) {
      std::string& count = plan.environment.at("TORCHELASTIC_RESTART_COUNT");
      if (count != "1") count = "0";
    }
  }
}

}  // namespace

std::vector<Bug> told_bugs() {
  return {
      {.name = "heartbeat-answered-twice",
       .breaks = "R3: a Heartbeat got 2",
       .orders =
           [](Planted&, Actions& actions) {
             repeat_sent(actions, [](rendezvous::Action& action) {
               return sent<HeartbeatAck>(action) != nullptr;
             });
           }},
      {.name = "operator-answered-twice",
       .breaks = "ReplyOperator without",
       .orders =
           [](Planted&, Actions& actions) {
             repeat_sent(actions, [](rendezvous::Action& action) {
               return std::holds_alternative<rendezvous::ReplyOperator>(action);
             });
           }},
      {.name = "over-twice",
       .breaks = "JobOver twice",
       .orders =
           [](Planted&, Actions& actions) {
             repeat_sent(actions, [](rendezvous::Action& action) {
               return std::holds_alternative<rendezvous::JobOver>(action);
             });
           }},
      {.name = "one-node-too-many",
       .breaks = "a generation of",
       .orders = [](Planted&, Actions& actions) { each_sent<Prepare>(actions, add_member); }},
      {.name = "one-node-too-few",
       .breaks = "a generation of",
       .orders = [](Planted&, Actions& actions) { each_sent<Prepare>(actions, drop_member); }},
      {.name = "master-port-differs",
       .breaks = "G1: g0 is not the same",
       .does =
           [](Planted&, const NodeTruth& node, const agent::Event&, AgentActions& actions) {
             for (agent::Action& action : actions) {
               auto* start = std::get_if<agent::StartWorkers>(&action);
               if (start == nullptr || node.index % 2 == 0) continue;
               for (agent::WorkerPlan& plan : start->workers)
                 plan.environment.at("MASTER_PORT") += "1";
             }
           }},
      {.name = "master-port-that-nobody-holds",
       .breaks = "G1: rank 0 does not hold",
       .orders =
           [](Planted&, Actions& actions) {
             each_sent<Commit>(actions, [](Commit& commit) { ++commit.master_port; });
           }},
      {.name = "master-is-elsewhere",
       .breaks = "G1: rank 0 is not at",
       .orders =
           [](Planted&, Actions& actions) {
             each_sent<Prepare>(actions, [](Prepare& prepare) {
               if (prepare.assignment.members.size() > 1) prepare.assignment.master_addr += "0";
             });
           }},
  };
}

std::vector<Bug> rule_bugs() {
  return {
      {.name = "fence-not-waited-for",
       .breaks = "G2",
       .hears =
           [](Planted&, Heard& event) {
             change_policy(event, [](JobPolicy& policy) { policy.fence = Fence::kFast; });
           }},
      {.name = "budget-window-too-short",
       .breaks = "G3: more charged",
       .hears =
           [](Planted&, Heard& event) {
             change_policy(event, [](JobPolicy& policy) {
               if (policy.max_restarts_window) *policy.max_restarts_window /= 8;
             });
           }},
      {.name = "lost-nodes-are-free-without-end",
       .breaks = "G3: lost node",
       .hears =
           [](Planted&, Heard& event) {
             change_policy(event, [](JobPolicy& policy) { policy.max_node_losses = 1000; });
           }},
      {.name = "lost-nodes-are-never-free",
       .breaks = "G3: the charge for a lost node",
       .hears =
           [](Planted&, Heard& event) {
             change_policy(event, [](JobPolicy& policy) { policy.max_node_losses = 0; });
           }},
      {.name = "lost-nodes-are-free-where-none-can-be-spared",
       .breaks = "G3: a lost node cost nothing",
       .orders = give_back,
       .knows = know_given_back},
      {.name = "quarantine-is-told-and-not-done", .breaks = "Q1", .orders = confine_in_words},
      {.name = "drained-and-chosen-again",
       .breaks = "D1",
       .hears = restart_for_drain,
       .orders = tell_drained},
      {.name = "followers-are-failures", .breaks = "F5", .hears = age_followers},
      {.name = "crashes-are-excused", .breaks = "F6", .hears = excuse_crashes},
      {.name = "agent-starts-a-generation-again",
       .breaks = "R4: agent",
       .does = start_the_same_again},
      {.name = "agent-tells-fewer-restarts", .breaks = "R4: agent", .does = forget_restarts},
  };
}

}  // namespace muster::sim::planting
