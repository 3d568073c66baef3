// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent_core/rig.h"

namespace muster::agent {
namespace {

AgentConfig with_gpus(std::uint32_t slots = 2) {
  AgentConfig config = test_config(slots);
  config.device_patience = 5s;
  return config;
}

// Generation 0 failed and is gone.
void fail_first(Rig& rig) {
  rig.join();
  rig.run_generation(0);
  rig.ended(0, Rig::code(1));
  rig.ended(1, Rig::killed(15));
  rig.gone(0);
  CHECK_FALSE(rig.has<AwaitDevices>());
  rig.gone(1);
}

}  // namespace

TEST_CASE("without a GPU nothing is asked and nothing waits") {
  Rig rig(test_config());
  fail_first(rig);
  CHECK_FALSE(rig.has<AwaitDevices>());
  rig.form(1);
  CHECK(rig.has<StartWorkers>());
}

TEST_CASE("the first workers wait for nobody") {
  Rig rig(with_gpus());
  rig.join();
  rig.form(0);
  CHECK(rig.has<StartWorkers>());
}

TEST_CASE("workers start when those before them have given their GPU memory back") {
  Rig rig(with_gpus());
  fail_first(rig);
  const auto asked = rig.only<AwaitDevices>();
  CHECK(asked.pids == std::vector<std::int64_t>{100, 101});
  CHECK(asked.patience == 5s);
  SECTION("before the server commits: nobody notices") {
    rig.step(DevicesFreed{asked.number, ""});
    CHECK_FALSE(rig.has<Say>());
    rig.form(1);
    CHECK_FALSE(rig.has<AwaitDevices>());
    CHECK(rig.only<StartWorkers>().generation == 1);
  }
  SECTION("after that: the start waits, and says so") {
    rig.form(1);
    CHECK_FALSE(rig.has<StartWorkers>());
    CHECK(rig.phase() == Phase::kPrepared);
    rig.now = rig.now + 800ms;
    rig.said(HeartbeatAck{1}, 1);
    CHECK_FALSE(rig.has<StartWorkers>());
    rig.step(DevicesFreed{asked.number + 1, ""});  // of another question
    CHECK_FALSE(rig.has<StartWorkers>());
    rig.step(DevicesFreed{asked.number, ""});
    CHECK(rig.says("waited 0.80 s until the memory of the last workers was free"));
    // In that time the server may have given this node up: it is asked.
    CHECK_FALSE(rig.has<StartWorkers>());
    const auto asks = rig.sent<Heartbeat>();
    REQUIRE(asks.size() == 1);
    rig.said(HeartbeatAck{asks[0].sequence}, 1);
    CHECK(rig.only<StartWorkers>().generation == 1);
  }
  SECTION("a short wait is not worth a line") {
    rig.form(1);
    rig.now = rig.now + 200ms;
    rig.step(DevicesFreed{asked.number, ""});
    CHECK_FALSE(rig.has<Say>());
    CHECK(rig.has<StartWorkers>());
  }
  SECTION("what still holds memory at the end is said, and the workers start") {
    rig.form(1);
    rig.step(DevicesFreed{asked.number, "pid 101 still holds memory of GPU 1"});
    CHECK(rig.says("not waiting any longer for free GPU memory: pid 101 still holds"));
    CHECK(rig.has<StartWorkers>());
  }
}

TEST_CASE("a driver that does not answer holds the start up for the patience and no longer") {
  AgentConfig config = with_gpus();
  config.spec.policy.heartbeat = 60s;
  config.spec.policy.node_timeout = 600s;
  config.spec.policy.reconnect_grace = 60s;
  Rig rig(config);
  fail_first(rig);
  rig.form(1);
  rig.pass(5400ms);
  CHECK_FALSE(rig.has<StartWorkers>());
  rig.pass(200ms);
  CHECK(rig.has<StartWorkers>());
  CHECK(rig.says("the driver does not answer"));
}

TEST_CASE("a start that waited is still the server's to take back") {
  Rig rig(with_gpus());
  fail_first(rig);
  const auto asked = rig.only<AwaitDevices>();
  rig.form(1);
  SECTION("by a stop order") {
    rig.said(StopOrder{}, 1);
    CHECK_FALSE(rig.sent<StopConfirmed>().empty());
    rig.step(DevicesFreed{asked.number, ""});
    CHECK_FALSE(rig.has<StartWorkers>());
  }
  SECTION("by the end of the job") {
    Outcome outcome;
    outcome.kind = OutcomeKind::kFailed;
    outcome.exit_code = 1;
    outcome.exit_class = ExitClass::kWorker;
    rig.said(OutcomeNotice{outcome});
    CHECK(rig.has<Finish>());
  }
  SECTION("by a newer generation, which waits in its place") {
    rig.form(2);
    CHECK_FALSE(rig.has<StartWorkers>());
    rig.step(DevicesFreed{asked.number, ""});
    CHECK(rig.only<StartWorkers>().generation == 2);
  }
}

TEST_CASE("a node whose stream broke while it waited does not start until the server says so") {
  Rig rig(with_gpus());
  fail_first(rig);
  const auto asked = rig.only<AwaitDevices>();
  rig.form(1);
  rig.now = rig.now + 600ms;
  rig.said(HeartbeatAck{1}, 1);
  rig.step(LinkDown{"reset"});
  rig.now = rig.now + 600ms;  // by now it is lost
  SECTION("without a stream") {
    rig.step(DevicesFreed{asked.number, ""});
    CHECK_FALSE(rig.has<StartWorkers>());
    rig.step(LinkUp{});
  }
  SECTION("with one on which its Join is not answered") {
    rig.step(LinkUp{});
    rig.step(DevicesFreed{asked.number, ""});
    CHECK_FALSE(rig.has<StartWorkers>());
  }
  rig.accept();
  CHECK_FALSE(rig.has<StartWorkers>());
  rig.said(Commit{0, 20001}, 1);  // it was not
  CHECK(rig.only<StartWorkers>().generation == 1);
}

TEST_CASE("where the budget is used up nobody looks, unless a generation comes all the same") {
  Rig rig(with_gpus());
  rig.join();
  Assignment last = rig.assignment(0);
  last.max_restarts = 0;
  rig.form(last);
  rig.spawn_all();
  rig.ended(0, Rig::code(1));
  rig.ended(1, Rig::killed(15));
  rig.gone(0);
  rig.gone(1);
  CHECK_FALSE(rig.has<AwaitDevices>());
  rig.said(Prepare{0, rig.assignment(1)}, 1);
  CHECK(rig.only<AwaitDevices>().pids.size() == 2);
  rig.said(Prepare{1, rig.assignment(1)}, 1);
  CHECK_FALSE(rig.has<AwaitDevices>());  // once is enough
}

TEST_CASE("the wait stays well within the time that the server gives a start") {
  AgentConfig config = with_gpus();
  config.spec.policy.join_timeout = 4s;
  Rig rig(config);
  fail_first(rig);
  CHECK(rig.only<AwaitDevices>().patience == 2s);
}

}  // namespace muster::agent
