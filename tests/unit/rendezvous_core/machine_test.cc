// SPDX-License-Identifier: Apache-2.0
//
// What scenarios cannot say: a host that stands still, limits, and numbers in bulk.
#include <algorithm>

#include <catch2/catch.hpp>

#include "launcher/rendezvous/core/rendezvous.h"

namespace {

using namespace muster;              // NOLINT: a test
using namespace muster::rendezvous;  // NOLINT: a test

JobSpec spec(std::uint32_t min, std::uint32_t max, const JobId& job = "j") {
  JobSpec made;
  made.job = job;
  made.min_nodes = min;
  made.max_nodes = max;
  return made;
}

// Steps the machine and keeps what agents need to answer.
class Host {
 public:
  explicit Host(Options options = {}) : machine(std::move(options), Rng(1)) {}

  std::vector<Action> step(const Event& event) {
    std::vector<Action> actions = machine.step(event, now);
    for (const Action& action : actions) {
      if (const auto* send = std::get_if<Send>(&action)) {
        if (std::holds_alternative<Stale>(send->message.body)) continue;
        known[send->session] = send->message.envelope;
      }
    }
    return actions;
  }
  std::vector<Action> join(SessionId session, const JobSpec& job, const NodeName& name) {
    AgentMessage message;
    message.envelope.job = job.job;
    message.envelope.node = name;
    Join join{job, {}, std::nullopt};
    join.node.name = name;
    join.node.host = name;
    message.body = join;
    return step(AgentSaid{session, "10.0.0.1", message});
  }
  std::vector<Action> say(SessionId session, AgentBody body) {
    return step(AgentSaid{session, "10.0.0.1", {known[session], std::move(body)}});
  }
  std::vector<Action> tick() { return step(Tick{}); }
  void form(const std::vector<SessionId>& sessions) {
    for (const SessionId session : sessions)
      say(session, PrepareAnswer{0, true, 20000, ""});
    for (const SessionId session : sessions)
      say(session, WorkersStarted{});
    REQUIRE(machine.view(now).front().phase == Phase::kRunning);
  }

  Rendezvous machine;
  Instant now;
  std::map<SessionId, Envelope> known;
};

template <typename Body>
const Body* sent(const std::vector<Action>& actions, SessionId session) {
  for (const Action& action : actions) {
    const auto* send = std::get_if<Send>(&action);
    if (send == nullptr || send->session != session) continue;
    if (const auto* body = std::get_if<Body>(&send->message.body)) return body;
  }
  return nullptr;
}

template <typename Kind>
bool has(const std::vector<Action>& actions) {
  return std::any_of(actions.begin(), actions.end(),
                     [](const Action& action) { return std::holds_alternative<Kind>(action); });
}

std::size_t members(const Host& host) {
  return host.machine.view(host.now).front().members.size();
}

}  // namespace

TEST_CASE("a strand that stood still loses nobody for its own absence") {
  Host host;
  host.join(1, spec(2, 2), "a");
  host.join(2, spec(2, 2), "b");
  host.form({1, 2});
  SECTION("served in time, a silent node is lost") {
    host.now = Instant{} + 10s;
    host.tick();
    CHECK(members(host) == 0);
  }
  SECTION("served late, the deadline moves by the delay") {
    host.now = Instant{} + 70s;  // the deadline was at 10 s: nobody could have been heard since
    host.tick();
    CHECK(members(host) == 2);
    host.now = host.now + 1s;  // one of two heartbeats that it gets
    host.say(1, Heartbeat{1, {}});
    CHECK(members(host) == 2);
    REQUIRE(host.machine.next_deadline() == host.now + 1s);
    host.now = host.now + 1s;
    host.tick();
    CHECK(members(host) == 1);
  }
  SECTION("a stall of half a second is nothing special") {
    host.now = Instant{} + 10s + 500ms;
    host.tick();
    CHECK(members(host) == 0);
  }
}

TEST_CASE("messages of streams that never joined are stale, and a second join is refused") {
  Host host;
  auto actions = host.step(AgentSaid{7, "", {Envelope{}, Heartbeat{}}});
  REQUIRE(sent<Stale>(actions, 7) != nullptr);
  CHECK(sent<Stale>(actions, 7)->what == "heartbeat");
  CHECK(host.step(StreamLost{7}).empty());
  host.join(1, spec(2, 2), "a");
  actions = host.join(1, spec(2, 2), "a");
  REQUIRE(sent<JoinRefused>(actions, 1) != nullptr);
  CHECK(sent<JoinRefused>(actions, 1)->why == JoinRefused::Why::kInvalid);
  CHECK(members(host) == 1);
}

TEST_CASE("a member that says it lives but never stops is given up") {
  Host host;
  host.join(1, spec(1, 1), "a");
  host.form({1});
  host.step(OperatorAsked{1, "j", "ann"});
  for (int second = 0; second < 200 && !host.machine.view(host.now).front().outcome; ++second) {
    host.now = host.now + 1s;
    host.say(1, Heartbeat{1, {}});
    const auto next = host.machine.next_deadline();
    if (next && *next <= host.now) host.tick();
  }
  // Grace, node timeout and 30 s of slack.
  CHECK(host.now == Instant{} + 70s);
  REQUIRE(host.machine.view(host.now).front().outcome.has_value());
  CHECK(host.machine.view(host.now).front().outcome->exit_code == 143);
}

TEST_CASE("limits hold, and finished jobs make room") {
  Options options;
  options.limits.jobs = 2;
  options.limits.members = 2;
  Host host(options);
  host.join(1, spec(3, 3), "a");
  host.join(2, spec(3, 3), "b");
  auto actions = host.join(3, spec(3, 3), "c");
  REQUIRE(sent<JoinRefused>(actions, 3) != nullptr);
  CHECK(sent<JoinRefused>(actions, 3)->why == JoinRefused::Why::kFull);
  CHECK(has<CloseSession>(actions));
  host.join(4, spec(2, 2, "k"), "a");
  actions = host.join(5, spec(2, 2, "l"), "a");
  CHECK(sent<JoinRefused>(actions, 5)->why == JoinRefused::Why::kFull);
  actions = host.step(OperatorAsked{1, "k", "ann"});
  host.say(4, OutcomeSeen{});
  actions = host.join(6, spec(2, 2, "l"), "a");
  CHECK(sent<JoinAccepted>(actions, 6) != nullptr);
  CHECK(host.machine.view(host.now).size() == 2);
}

TEST_CASE("which job a stop means") {
  Host host;
  const auto reply = [&](const JobId& job) {
    for (const Action& action : host.step(OperatorAsked{9, job, "ann"})) {
      if (const auto* said = std::get_if<ReplyOperator>(&action)) {
        CHECK(said->request == 9);
        return said->answer.accepted();
      }
    }
    FAIL("no reply");
    return false;
  };
  CHECK_FALSE(reply(""));
  host.join(1, spec(2, 2), "a");
  host.join(2, spec(2, 2, "k"), "a");
  CHECK_FALSE(reply(""));  // two jobs
  CHECK(reply("k"));
  CHECK_FALSE(reply("k"));
}

TEST_CASE("an outcome is kept for those who ask late, then forgotten") {
  Host host;
  host.join(1, spec(1, 1), "a");
  host.step(OperatorAsked{1, "j", "ann"});
  CHECK(has<JobOver>(host.say(1, OutcomeSeen{})));
  REQUIRE(host.machine.next_deadline() == Instant{} + 1h);
  host.now = Instant{} + 1h;
  host.tick();
  CHECK(host.machine.view(host.now).empty());
  CHECK_FALSE(host.machine.next_deadline().has_value());
}

TEST_CASE("of many runs of one job id the oldest are forgotten") {
  Host host;
  int over = 0;
  for (SessionId run = 1; run <= 20; ++run) {
    host.join(run, spec(1, 1), "a");
    // Nobody confirms: the host is told when the run is forgotten at the latest.
    for (const Action& action : host.step(OperatorAsked{run, "j", "ann"})) {
      if (std::holds_alternative<JobOver>(action)) ++over;
    }
  }
  for (SessionId run = 21; run <= 22; ++run) {
    for (const Action& action : host.join(run, spec(1, 1), "a")) {
      if (std::holds_alternative<JobOver>(action)) ++over;
    }
    host.step(OperatorAsked{run, "j", "ann"});
  }
  CHECK(over >= 2);
  // Streams of a forgotten run are known no more, and do no harm.
  CHECK(sent<Stale>(host.say(1, OutcomeSeen{}), 1) != nullptr);
}

TEST_CASE("a job of five hundred nodes forms, beats and ends") {
  constexpr SessionId kNodes = 500;
  JobSpec job = spec(kNodes, kNodes);
  Host host;
  for (SessionId session = 1; session <= kNodes; ++session) {
    host.now = host.now + 1ms;
    host.join(session, job, "n" + std::to_string(session));
  }
  std::vector<SessionId> all;
  for (SessionId session = 1; session <= kNodes; ++session)
    all.push_back(session);
  host.form(all);
  for (int beat = 0; beat < 5; ++beat) {
    host.now = host.now + 1s;
    for (const SessionId session : all)
      host.say(session, Heartbeat{1, {}});
  }
  const JobView view = host.machine.view(host.now).front();
  CHECK(view.world_size == kNodes);
  CHECK(std::count_if(view.members.begin(), view.members.end(), [](const MemberView& member) {
          return member.ranks.has_value();
        }) == static_cast<std::ptrdiff_t>(kNodes));
}

TEST_CASE("a run belongs to one job, whatever an agent says") {
  Host host;
  host.join(1, spec(1, 1, "j"), "a");
  host.form({1});
  const RunId run = host.known[1].run;
  host.join(2, spec(1, 1, "k"), "a");
  AgentMessage message;
  message.envelope.job = "k";
  message.envelope.node = "b";
  Join join{spec(1, 1, "k"), {}, Reattach{}};
  join.node.name = "b";
  join.reattach->run = run;
  join.reattach->incarnation = 1;
  join.reattach->generation = 7;
  SECTION("that has a run of its own") {}
  SECTION("that has none") {
    message.envelope.job = join.spec.job = "l";
  }
  message.body = join;
  CHECK(sent<Evicted>(host.step(AgentSaid{3, "10.0.0.1", message}), 3) != nullptr);
  const std::vector<RunRecord> records = host.machine.records();
  CHECK(std::count_if(records.begin(), records.end(),
                      [&](const RunRecord& record) { return record.job.run == run; }) == 1);
}

TEST_CASE("what a refused agent told of its run is written down") {
  Host host;
  JobSpec job = spec(1, 1);
  job.policy.max_spares = 0;
  host.join(1, job, "a");
  AgentMessage message;
  message.envelope.job = "j";
  message.envelope.node = "b";
  Join join{job, {}, Reattach{}};
  join.node.name = join.node.host = "b";
  join.reattach->run = host.known[1].run;
  join.reattach->incarnation = 7;
  join.reattach->generation = kNoGeneration;
  join.reattach->restarts_used = 1;  // charged by a server that lost it
  message.body = join;
  const std::vector<Action> refused = host.step(AgentSaid{2, "10.0.0.1", message});
  CHECK(sent<JoinRefused>(refused, 2) != nullptr);
  const auto write = std::find_if(refused.begin(), refused.end(), [](const Action& action) {
    return std::holds_alternative<Persist>(action);
  });
  REQUIRE(write != refused.end());
  CHECK(std::get<Persist>(*write).record.restarts_used == 1);
}

TEST_CASE("a job takes no more workers than its messages can count") {
  Options options;
  options.limits.ranks = 3;
  Host host(options);
  JobSpec job = spec(1, 4);
  host.join(1, job, "a");
  host.join(2, job, "b");
  CHECK(members(host) == 2);
  host.join(3, job, "c");
  const auto refused = host.join(4, job, "d");
  REQUIRE(sent<JoinRefused>(refused, 4) != nullptr);
  CHECK(sent<JoinRefused>(refused, 4)->text.find("would have 4 workers") != std::string::npos);
}

TEST_CASE("no deadline comes again at once, however odd the times") {
  Host host;
  JobSpec job = spec(1, 1);
  SECTION("a node may read the outcome later than it is kept") {
    job.policy.node_timeout = 3h;
    host.join(1, job, "a");
    host.step(OperatorAsked{1, "j", "op"});
    host.now = Instant{} + 10s;
    host.say(1, Heartbeat{1, {}});
  }
  SECTION("losses are held for far longer than a node may be silent") {
    job = spec(3, 9);
    job.policy.node_timeout = 1ns;
    for (SessionId session = 1; session <= 3; ++session)
      host.join(session, job, std::string(1, static_cast<char>('a' + session)));
    for (SessionId session = 1; session <= 3; ++session)
      host.step(StreamLost{session});
  }
  int ticks = 0;
  for (auto due = host.machine.next_deadline(); due && ++ticks < 50;
       due = host.machine.next_deadline()) {
    host.now = std::max(host.now, *due);
    host.tick();
  }
  CHECK(ticks < 50);
}

TEST_CASE("a server that left while workers were stopping writes what can be read again") {
  Host host;
  host.join(1, spec(1, 1), "a");
  host.form({1});
  std::vector<RunRecord> journal;
  write_down(host.step(OperatorAsked{1, "j", "op"}), journal);
  write_down(host.step(ServerStopping{"bye"}), journal);
  journal = host.machine.records();
  Host second;
  write_down(second.step(JournalRead{journal}), journal);
  REQUIRE(journal.size() == 1);
  CHECK(journal[0].job.phase == Phase::kStopping);
  CHECK(journal[0].job.stop.has_value());
}
