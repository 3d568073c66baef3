// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/server_judge.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "launcher/rendezvous/shell/record_wire.h"
#include "proto/wire/messages.h"

namespace muster::fuzz {

using namespace rendezvous;

namespace {

// Numbers and texts are bounded at the border by what a job of this age can reach.
constexpr Duration kYoung = std::chrono::hours(24 * 3600);

template <class Answer>
std::ptrdiff_t answers(const std::vector<Action>& actions, SessionId session, Answer is_answer) {
  return std::count_if(actions.begin(), actions.end(), [&](const Action& action) {
    const auto* send = std::get_if<Send>(&action);
    return send != nullptr && send->session == session && is_answer(send->message.body);
  });
}

template <class... Bodies>
bool is_any(const ServerBody& body) {
  return (std::holds_alternative<Bodies>(body) || ...);
}

template <class Record, class Message>
void expect_same(const Record& record, Message message) {
  write(record, message);
  const std::string bytes = message.SerializeAsString();
  wire::Border border;
  const Record back = read(message, border);
  expect(border.ok(), "what was written can be read", border.status().ToString());
  Message again;
  write(back, again);
  expect(again.SerializeAsString() == bytes, "what was read is what was written");
}

}  // namespace

void expect_readable(const RunRecord& run) {
  v1::JobRecord message;
  write(run.job, run.progress, message);
  const std::string bytes = message.SerializeAsString();
  RunRecord back;
  const absl::Status read = read_row(bytes, checksum(bytes), back.job, back.progress);
  expect(read.ok(), "what was written can be read", read.ToString());
  v1::JobRecord again;
  write(back.job, back.progress, again);
  expect(again.SerializeAsString() == bytes, "what was read is what was written");
  if (run.life) expect_same(*run.life, v1::LifeRecord());
  for (const NodeRecord& node : run.nodes)
    expect_same(node, v1::NodeRecord());
  wire::Border border;
  check_run(run, border);
  expect(border.ok(), "the server writes only what it takes back", border.status().ToString());
}

void ServerJudge::server_started(bool from_journal) {
  rounds_.clear();
  stores_.clear();
  over_.clear();
  leaves_ = false;
  if (from_journal) return;
  journal_.clear();
  last_.clear();
  outcomes_.clear();
}

void ServerJudge::stepped(const Event& event, const std::vector<Action>& actions,
                          const Rendezvous& machine, Instant now) {
  now_ = now;
  written_.clear();
  if (std::holds_alternative<ServerStopping>(event)) leaves_ = true;
  for (const Action& action : actions)
    std::visit([this](const auto& order) { on(order); }, action);
  check_answers(event, actions);
  write_down(actions, journal_);
  const bool wrote = std::any_of(actions.begin(), actions.end(), [](const Action& action) {
    return std::holds_alternative<Persist>(action) || std::holds_alternative<Forget>(action);
  });
  // What is not written must not have changed either; looked at now and then, for it is slow.
  constexpr std::uint64_t kNowAndThen = 16;
  if (wrote || ++steps_ % kNowAndThen == 0) {
    check_journal(machine);
    check_bounds(machine, now);
  }
}

void ServerJudge::check_answers(const Event& event, const std::vector<Action>& actions) const {
  if (const auto* asked = std::get_if<OperatorAsked>(&event)) {
    const auto replies = std::count_if(actions.begin(), actions.end(), [&](const Action& action) {
      const auto* reply = std::get_if<ReplyOperator>(&action);
      return reply != nullptr && reply->request == asked->request;
    });
    expect(replies == 1, "an order gets one answer", std::to_string(replies));
  }
  const auto* said = std::get_if<AgentSaid>(&event);
  if (said == nullptr) return;
  if (std::holds_alternative<Join>(said->message.body)) {
    const auto accepted = answers(actions, said->session, is_any<JoinAccepted>);
    const auto refused = answers(actions, said->session, is_any<JoinRefused, Evicted>);
    const auto over = answers(actions, said->session, is_any<OutcomeNotice>);
    // What an accepted agent brings along may itself be the end of the job.
    const auto all = accepted + refused + (accepted == 0 ? over : 0);
    expect(all == 1, "a Join gets one answer", std::to_string(all));
  } else if (std::holds_alternative<Heartbeat>(said->message.body) && !leaves_) {
    const auto all = answers(actions, said->session, is_any<HeartbeatAck, Stale>);
    expect(all == 1, "a Heartbeat gets one answer", std::to_string(all));
  }
}

void ServerJudge::on(const Send& send) {
  const Envelope& envelope = send.message.envelope;
  if (const auto* prepare = std::get_if<Prepare>(&send.message.body)) prepared(envelope, *prepare);
  if (const auto* notice = std::get_if<OutcomeNotice>(&send.message.body)) {
    outcome(envelope.run, notice->outcome);
  }
  if (now_ > Instant{kYoung}) return;
  const auto let_in = wire::from_wire(wire::to_wire(send.message));
  expect(let_in.ok(), "an agent's border takes what the server says", let_in.status().ToString());
}

void ServerJudge::prepared(const Envelope& envelope, const Prepare& prepare) {
  const Assignment& assignment = prepare.assignment;
  std::set<NodeName> names;
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < assignment.members.size(); ++i) {
    const MemberRanks& ranks = assignment.members[i];
    expect(ranks.group_rank == i && ranks.first_rank == next && ranks.count > 0,
           "ranks are 0 to n-1, each once");
    expect(names.insert(ranks.node).second, "a node is in a generation once", ranks.node);
    next += ranks.count;
  }
  expect(next == assignment.world_size, "ranks add up to the world size");
  expect(assignment.group_rank < assignment.members.size() &&
             assignment.members[assignment.group_rank].node == envelope.node,
         "a Prepare has its receiver");
  expect(assignment.generation == envelope.generation, "a Prepare speaks of its generation");
  const auto [known, is_new] = rounds_.try_emplace(
      {envelope.run, assignment.generation, prepare.attempt}, assignment.members);
  expect(is_new || known->second == assignment.members, "a Prepare is the same for all");
}

void ServerJudge::on(const Persist& persist) {
  const JobRecord& record = persist.record;
  written_.insert(record.run);
  const auto [known, is_new] = last_.try_emplace(record.run, record);
  if (!is_new) {
    const JobRecord& before = known->second;
    expect(record.spec.job == before.spec.job, "a run belongs to one job", record.run);
    expect(record.generation >= before.generation, "a generation never falls");
    expect(record.last_incarnation >= before.last_incarnation, "an incarnation never falls");
    expect(record.restarts_used >= before.restarts_used, "restarts used never fall");
    expect(record.epoch >= before.epoch, "an epoch never falls");
    known->second = record;
  }
  if (record.outcome) outcome(record.run, *record.outcome);
}

void ServerJudge::outcome(const RunId& run, const Outcome& outcome) {
  const auto [known, is_new] = outcomes_.try_emplace(run, outcome);
  expect(is_new || known->second == outcome, "a run has one outcome", run);
}

void ServerJudge::on(const Forget& forget) {
  last_.erase(forget.run);
  outcomes_.erase(forget.run);
  over_.erase(forget.run);
  std::erase_if(rounds_, [&](const auto& entry) { return std::get<0>(entry.first) == forget.run; });
}

void ServerJudge::on(const Emit& emit) {
  if (const auto* finished = std::get_if<event::JobFinished>(&emit.event.body)) {
    outcome(emit.run, finished->outcome);
  }
}

void ServerJudge::on(const OpenStore& open) {
  expect(stores_.emplace(open.job, open.generation).second, "a key space opens once");
}

void ServerJudge::on(const CloseStore& close) {
  expect(stores_.erase({close.job, close.generation}) == 1, "what closes was open");
}

void ServerJudge::on(const JobOver& over) {
  outcome(over.run, over.outcome);
  expect(over_.insert(over.run).second, "a job is over once", over.run);
}

void ServerJudge::check_journal(const Rendezvous& machine) const {
  const std::vector<RunRecord> known = machine.records();
  expect(journal_.size() == known.size(), "the journal has the machine's runs");
  for (const RunRecord& truth : known) {
    const auto run = std::find_if(journal_.begin(), journal_.end(), [&](const auto& candidate) {
      return candidate.job.run == truth.job.run;
    });
    expect(run != journal_.end(), "the journal has the machine's runs", truth.job.run);
    expect(run->job == truth.job, "the journal's job is the machine's");
    expect(run->life == truth.life, "the journal's generation is the machine's");
    expect(run->nodes == truth.nodes, "the journal's nodes are the machine's");
    if (now_ <= Instant{kYoung} && written_.contains(truth.job.run)) expect_readable(*run);
  }
}

void ServerJudge::check_bounds(const Rendezvous& machine, Instant now) const {
  const std::vector<JobView> jobs = machine.view(now);
  expect(jobs.size() <= limits_.jobs, "jobs are bounded");
  for (const JobView& job : jobs)
    expect(job.members.size() <= limits_.members, "members are bounded");
}

}  // namespace muster::fuzz
