// SPDX-License-Identifier: Apache-2.0
//
// How long a stream may stay, and how long an outcome does.
#include <catch2/catch.hpp>

#include "launcher/rendezvous/shell/server_core.h"
#include "tests/unit/rendezvous_shell/core_world.h"

namespace muster::rendezvous {
namespace {

using test::finish_job;
using test::Heard;
using test::run_up;
using test::World;

}  // namespace

TEST_CASE("a stream on which no join is accepted goes after its time", "[server_core]") {
  constexpr const char* kWhy =
      "no join was accepted on this stream within 1s; a stream is for an agent that joins";
  ServerOptions options = test::server_options();
  options.join_within = 1s;
  options.max_sessions = 3;
  Heard heard;
  Heard silent;
  Heard stray;
  Heard late;
  World world(std::move(options));
  const auto start = std::chrono::steady_clock::now();
  LocalSession& session = world.attach(heard);
  world.attach(silent);
  LocalSession& lost = world.attach(stray);
  world.attach(late);
  CHECK(late.closed.next() == "the server has its 3 streams");
  world.send(lost, test::message_from(heard.last, Heartbeat{1, {}}));  // answered, but no join
  run_up(world, session, heard, "job");
  CHECK(silent.closed.next() == kWhy);
  CHECK(stray.closed.next() == kWhy);
  CHECK(std::chrono::steady_clock::now() - start >= 1s);
  CHECK(world.thread.on_io([&] { return world.core->open_sessions(); }) == 1);
  finish_job(world, session, heard);

  // One that is told an old run's outcome joins nothing either.
  REQUIRE(world.over.next());
  Heard asker;
  LocalSession& asking = world.attach(asker);
  AgentMessage join = test::join_message("job", "a", 1, 1);
  std::get<Join>(join.body).reattach =
      Reattach{heard.last.run, heard.last.incarnation, 0, false, {}, 0, heard.last.epoch};
  world.send(asking, join);
  REQUIRE(asker.next<OutcomeNotice>());
  CHECK(asker.closed.next() == kWhy);
}

TEST_CASE("an outcome is kept for as long as was told", "[server_core]") {
  ServerOptions options = test::server_options();
  options.machine.limits.outcome_kept = 2s;
  Heard heard;
  World world(std::move(options));
  LocalSession& session = world.attach(heard);
  run_up(world, session, heard, "job");
  AgentMessage late = test::join_message("job", "a", 1, 1);
  std::get<Join>(late.body).spec.policy.server_grace = 0ns;
  std::get<Join>(late.body).reattach =
      Reattach{heard.last.run, heard.last.incarnation, 0, false, {}, 0, heard.last.epoch};
  finish_job(world, session, heard);
  REQUIRE(world.over.next());
  Heard soon;
  LocalSession& asking = world.attach(soon);
  world.send(asking, late);
  const auto outcome = soon.next<OutcomeNotice>();
  REQUIRE(outcome);
  CHECK(outcome->outcome.kind == OutcomeKind::kSucceeded);

  REQUIRE(test::eventually(
      [&] { return world.thread.on_io([&] { return world.core->view().empty(); }); }));
  Heard after;
  LocalSession& too_late = world.attach(after);
  world.send(too_late, late);
  REQUIRE(after.next<Evicted>());
  REQUIRE(after.closed.next());
  // The same job id begins anew.
  Heard again;
  LocalSession& another = world.attach(again);
  run_up(world, another, again, "job");
  CHECK(again.last.run != heard.last.run);
}

TEST_CASE("an agent of a run that is forgotten keeps no stream for ever", "[server_core]") {
  ServerOptions options = test::server_options();
  options.join_within = 300ms;
  options.machine.limits.outcome_kept = 300ms;
  Heard heard;
  World world(std::move(options));
  LocalSession& session = world.attach(heard);
  run_up(world, session, heard, "job");
  finish_job(world, session, heard);
  const auto why = heard.closed.next();
  REQUIRE(why);
  CHECK(why->find("no join was accepted on this stream") == 0);
  CHECK(world.thread.on_io([&] { return world.core->view().empty(); }));
}

}  // namespace muster::rendezvous
