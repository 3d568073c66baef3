// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/planted.h"

#include <algorithm>

#include "tests/sim/planted_tools.h"

namespace muster::sim {
namespace {

using namespace planting;

// The same untruth in what is written and in what is known.
template <void (*Change)(rendezvous::JobRecord&)>
Bug recorded(const char* name, const char* breaks) {
  return {.name = name,
          .breaks = breaks,
          .orders =
              [](Planted&, Actions& actions) {
                for (rendezvous::Action& action : actions) {
                  if (auto* persist = std::get_if<rendezvous::Persist>(&action)) {
                    Change(persist->record);
                  }
                }
              },
          .knows =
              [](Planted&, Records& records) {
                for (rendezvous::RunRecord& run : records)
                  Change(run.job);
              }};
}

void lower_generation(rendezvous::JobRecord& job) {
  if (job.generation > 0) job.generation -= 2;
}
void lower_incarnation(rendezvous::JobRecord& job) {
  if (job.last_incarnation > 2) job.last_incarnation -= 2;
}
void lower_restarts(rendezvous::JobRecord& job) {
  if (job.restarts_used > 1) job.restarts_used -= 2;
}
void lower_epoch(rendezvous::JobRecord& job) {
  if (job.epoch > 1) job.epoch -= 2;
}

void grow_unasked(rendezvous::JobRecord& job) {
  if (job.generation > 0) ++job.spec.max_nodes;
}
void forget_asked(rendezvous::JobRecord& job) {
  job.asked = {job.spec.min_nodes, job.spec.max_nodes};
}

void reverse_ranks(Prepare& prepare) {
  Assignment& told = prepare.assignment;
  std::reverse(told.members.begin(), told.members.end());
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < told.members.size(); ++i) {
    told.members[i].group_rank = static_cast<std::uint32_t>(i);
    told.members[i].first_rank = next;
    next += told.members[i].count;
  }
  told.group_rank = static_cast<std::uint32_t>(told.members.size()) - 1 - told.group_rank;
}

// As if every node that is ordered to stop had done so at once.
void forge_confirmations(Planted& planted, Actions& actions, bool known) {
  for (rendezvous::Action& action : actions) {
    if (sent<StopOrder>(action) == nullptr) continue;
    const auto& send = std::get<rendezvous::Send>(action);
    Planted::Forged& forged = planted.forged.emplace_back();
    forged.event =
        rendezvous::AgentSaid{send.session, "", {send.message.envelope, StopConfirmed{}}};
    forged.known = known;
  }
}

void keep_departed(Planted& planted, Actions& actions) {
  for (rendezvous::Action& action : actions) {
    auto* persist = std::get_if<rendezvous::Persist>(&action);
    if (persist == nullptr) continue;
    for (const NodeName& name : persist->removed) {
      rendezvous::NodeRecord record;
      record.node = name;
      planted.kept.emplace_back(persist->record.run, record);
      persist->nodes.push_back(record);
    }
    persist->removed.clear();
  }
}

void know_departed(Planted& planted, Records& records) {
  for (rendezvous::RunRecord& run : records) {
    for (const auto& [id, node] : planted.kept) {
      const bool there = std::any_of(run.nodes.begin(), run.nodes.end(),
                                     [&](const auto& other) { return other.node == node.node; });
      if (id == run.job.run && !there) run.nodes.push_back(node);
    }
    std::sort(run.nodes.begin(), run.nodes.end(),
              [](const auto& a, const auto& b) { return a.node < b.node; });
  }
}

void kill_workers(const NodeTruth& node, AgentActions& actions) {
  for (const ProcessPtr& process : node.processes) {
    if (!process->leader || process->dying) continue;
    actions.push_back(agent::SignalWorker{process->local_rank, 9, agent::SignalScope::kGroup});
  }
}

// ---------------------------------------------------------------- the lists

std::vector<Bug> rank_bugs() {
  return {
      {.name = "ranks-overlap",
       .breaks = "R1: ranks are not",
       .orders =
           [](Planted&, Actions& actions) {
             each_sent<Prepare>(actions, [](Prepare& prepare) {
               if (prepare.assignment.members.size() > 1)
                 --prepare.assignment.members[1].first_rank;
             });
           }},
      {.name = "ranks-differ-between-nodes",
       .breaks = "R1: two members",
       .orders =
           [](Planted&, Actions& actions) {
             each_sent<Prepare>(actions, [](Prepare& prepare) {
               std::vector<MemberRanks>& members = prepare.assignment.members;
               if (members.size() < 3 || prepare.assignment.group_rank != 0) return;
               std::swap(members[1].node, members[2].node);
             });
           }},
      {.name = "ranks-move",
       .breaks = "M2",
       .orders = [](Planted&, Actions& actions) { each_sent<Prepare>(actions, reverse_ranks); }},
      {.name = "leave-unheard",
       .breaks = "M2",
       .hears =
           [](Planted&, Heard& event) {
             if (said<Leave>(*event)) event.reset();
           }},
      {.name = "restart-count-differs",
       .breaks = "G1",
       .orders =
           [](Planted&, Actions& actions) {
             each_sent<Prepare>(actions, [](Prepare& prepare) {
               if (prepare.assignment.group_rank == 1) ++prepare.assignment.restarts_used;
             });
           }},
  };
}

std::vector<Bug> fencing_bugs() {
  return {
      {.name = "commit-before-confirmed",
       .breaks = "M4",
       .orders = [](Planted& planted,
                    Actions& actions) { forge_confirmations(planted, actions, false); }},
      {.name = "confirmation-without-stop",
       .breaks = "G2",
       .orders = [](Planted& planted,
                    Actions& actions) { forge_confirmations(planted, actions, true); }},
      {.name = "confirms-while-workers-live",
       .breaks = "A2",
       .does =
           [](Planted&, const NodeTruth&, const agent::Event& event, AgentActions& actions) {
             if (!read<StopOrder>(event)) return;
             Envelope envelope = std::get<agent::ServerSaid>(event).message.envelope;
             actions.push_back(agent::Send{{envelope, StopConfirmed{}}});
           }},
      {.name = "starts-beside-the-old",
       .breaks = "A1",
       .does =
           [](Planted& planted, const NodeTruth& node, const agent::Event& event,
              AgentActions& actions) {
             const auto last = planted.started.find(node.index);
             const bool orders = read<StopOrder>(event);
             if (orders && last != planted.started.end()) actions.push_back(last->second);
             for (const agent::Action& action : actions) {
               const auto* start = std::get_if<agent::StartWorkers>(&action);
               if (start != nullptr && !orders) planted.started[node.index] = *start;
             }
           }},
      {.name = "ends-before-its-workers",
       .breaks = "A3",
       .does =
           [](Planted&, const NodeTruth& node, const agent::Event& event, AgentActions& actions) {
             const bool signaled = std::holds_alternative<agent::SignalReceived>(event);
             if (!signaled || !node.stream_open) return;
             actions = {agent::Disconnect{}, agent::ReleaseMasterPort{},
                        agent::Finish{143, ExitClass::kSignal, std::nullopt, ""}};
             if (node.index != 0 || node.processes.empty()) actions.erase(actions.begin() + 1);
           }},
      {.name = "lease-ignored",
       .breaks = "A4",
       .does =
           [](Planted&, const NodeTruth& node, const agent::Event&, AgentActions& actions) {
             if (node.stream_up) return;
             std::erase_if(actions, [](const agent::Action& action) {
               return std::holds_alternative<agent::SignalWorker>(action);
             });
           }},
      {.name = "told-to-end-while-suspended",
       .breaks = "A5",
       .does =
           [](Planted&, const NodeTruth&, const agent::Event& event, AgentActions& actions) {
             if (std::holds_alternative<agent::SignalReceived>(event)) return;
             std::erase_if(actions, [](const agent::Action& action) {
               const auto* signal = std::get_if<agent::SignalWorker>(&action);
               return signal != nullptr && signal->signal == 18;
             });
           }},
      {.name = "workers-die-with-the-stream",
       .breaks = "G5",
       .does =
           [](Planted&, const NodeTruth& node, const agent::Event& event, AgentActions& actions) {
             if (std::holds_alternative<agent::LinkDown>(event)) kill_workers(node, actions);
           }},
  };
}

std::vector<Bug> cost_bugs() {
  return {
      {.name = "failure-costs-nothing",
       .breaks = "G3: a worker's failure",
       .orders =
           [](Planted&, Actions& actions) {
             each_told<event::RestartScheduled>(actions, [](auto& told) { told.charged = false; });
           }},
      {.name = "leave-is-charged",
       .breaks = "G3: a restart without",
       .orders =
           [](Planted&, Actions& actions) {
             each_told<event::RestartScheduled>(actions, [](auto& told) { told.charged = true; });
           }},
      {.name = "one-restart-too-many",
       .breaks = "G3: the budget",
       .hears =
           [](Planted&, Heard& event) {
             auto* said = std::get_if<rendezvous::AgentSaid>(&*event);
             auto* join = said == nullptr ? nullptr : std::get_if<Join>(&said->message.body);
             if (join != nullptr) ++join->spec.policy.max_restarts;
           }},
      {.name = "two-first-causes",
       .breaks = "F1",
       .orders =
           [](Planted&, Actions& actions) {
             repeat_sent(actions, [](rendezvous::Action& action) {
               return told<event::GenerationFailed>(action) != nullptr;
             });
           }},
      {.name = "wrong-reason",
       .breaks = "F2",
       .orders =
           [](Planted&, Actions& actions) {
             each_told<event::GenerationFormed>(actions, [](auto& told) {
               if (told.reason == FormReason::kNodeLeft) told.reason = FormReason::kNodeLost;
             });
           }},
      {.name = "formed-without-reason",
       .breaks = "F2",
       .orders =
           [](Planted&, Actions& actions) {
             std::erase_if(actions, [](rendezvous::Action& action) {
               return told<event::RestartScheduled>(action) != nullptr;
             });
           }},
  };
}

std::vector<Bug> answer_bugs() {
  return {
      {.name = "join-unanswered",
       .breaks = "R3",
       .orders =
           [](Planted& planted, Actions& actions) {
             std::erase_if(actions, [&](rendezvous::Action& action) {
               return sent<JoinAccepted>(action) != nullptr && ++planted.count % 5 == 0;
             });
           }},
      {.name = "join-answered-twice",
       .breaks = "R3",
       .orders =
           [](Planted&, Actions& actions) {
             repeat_sent(actions, [](rendezvous::Action& action) {
               return sent<JoinAccepted>(action) != nullptr;
             });
           }},
      {.name = "heartbeat-unanswered",
       .breaks = "R3",
       .orders =
           [](Planted& planted, Actions& actions) {
             std::erase_if(actions, [&](rendezvous::Action& action) {
               return sent<HeartbeatAck>(action) != nullptr && ++planted.count % 7 == 0;
             });
           }},
      {.name = "stop-unanswered",
       .breaks = "a stop request",
       .orders =
           [](Planted&, Actions& actions) {
             std::erase_if(actions, [](const rendezvous::Action& action) {
               return std::holds_alternative<rendezvous::ReplyOperator>(action);
             });
           }},
      {.name = "outcome-changes",
       .breaks = "R5",
       .orders =
           [](Planted& planted, Actions& actions) {
             each_sent<OutcomeNotice>(actions, [&](OutcomeNotice& notice) {
               if (++planted.count > 1) ++notice.outcome.exit_code;
             });
           }},
      {.name = "success-that-nobody-decided",
       .breaks = "G7",
       .does =
           [](Planted&, const NodeTruth&, const agent::Event&, AgentActions& actions) {
             for (agent::Action& action : actions) {
               auto* end = std::get_if<agent::Finish>(&action);
               if (end != nullptr && end->exit_class == ExitClass::kServerLost) end->exit_code = 0;
             }
           }},
      {.name = "over-unsaid",
       .breaks = "liveness",
       .orders =
           [](Planted&, Actions& actions) {
             std::erase_if(actions, [](const rendezvous::Action& action) {
               return std::holds_alternative<rendezvous::JobOver>(action);
             });
           }},
  };
}

std::vector<Bug> memory_bugs() {
  return {
      recorded<lower_generation>("generation-falls", "R4"),
      recorded<lower_incarnation>("incarnation-falls", "R4"),
      recorded<lower_restarts>("restarts-used-fall", "R4"),
      recorded<lower_epoch>("epoch-falls", "R4"),
      recorded<grow_unasked>("scaled-without-an-order", "the job was scaled"),
      recorded<forget_asked>("first-size-forgotten", "the job forgot"),
      {.name = "drain-is-told-and-not-done",
       .breaks = "M",
       .hears =
           [](Planted&, std::optional<rendezvous::Event>& event) {
             auto* asked = std::get_if<rendezvous::OperatorAsked>(&*event);
             if (asked == nullptr) return;
             if (std::holds_alternative<rendezvous::DrainNode>(asked->order)) {
               asked->order = rendezvous::RestartJob{};
             }
           }},
      {.name = "departed-are-remembered",
       .breaks = "B1",
       .orders = keep_departed,
       .knows = know_departed},
      {.name = "streams-are-remembered",
       .breaks = "B2",
       .hears =
           [](Planted&, Heard& event) {
             if (std::holds_alternative<rendezvous::StreamLost>(*event)) event.reset();
           }},
      {.name = "journal-misses-a-node",
       .breaks = "J1",
       .orders =
           [](Planted& planted, Actions& actions) {
             for (rendezvous::Action& action : actions) {
               auto* persist = std::get_if<rendezvous::Persist>(&action);
               if (persist != nullptr && ++planted.count % 11 == 0) persist->nodes.clear();
             }
           }},
      {.name = "written-after-it-left",
       .breaks = "J2",
       .orders =
           [](Planted&, Actions& actions) {
             std::stable_partition(actions.begin(), actions.end(), [](const auto& action) {
               return !std::holds_alternative<rendezvous::Persist>(action);
             });
           }},
  };
}

}  // namespace

const std::vector<Bug>& bugs() {
  static const std::vector<Bug> all = [] {
    std::vector<Bug> list;
    for (auto* part : {rank_bugs, fencing_bugs, cost_bugs, answer_bugs, memory_bugs,
                       planting::told_bugs, planting::rule_bugs}) {
      for (Bug& bug : part())
        list.push_back(bug);
    }
    return list;
  }();
  return all;
}

const Bug* find_bug(const std::string& name) {
  const auto found =
      std::find_if(bugs().begin(), bugs().end(), [&](const Bug& bug) { return name == bug.name; });
  return found == bugs().end() ? nullptr : &*found;
}

}  // namespace muster::sim
