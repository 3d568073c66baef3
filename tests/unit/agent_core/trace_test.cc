// SPDX-License-Identifier: Apache-2.0
#include "agent/core/trace.h"

#include "tests/unit/agent_core/rig.h"

namespace muster::agent {

TEST_CASE("a traced message says whose it is, of which job, generation and epoch") {
  Envelope envelope{
      .job = "j", .run = "r", .generation = 3, .node = "b", .incarnation = 2, .epoch = 4};
  CHECK(trace(ServerSaid{{envelope, Commit{7, 20123}}}) ==
        "received Commit: attempt 7, master port 20123 [job j run r node b#2 g3 epoch 4]");
  CHECK(trace(Send{{envelope, StopConfirmed{}}}) ==
        "sends StopConfirmed [job j run r node b#2 g3 epoch 4]");
  envelope.generation = kNoGeneration;
  envelope.run.clear();
  CHECK(trace(Send{{envelope, Leave{15, "told to stop"}}}) ==
        "sends Leave: SIGTERM told to stop [job j node b#2 g- epoch 4]");
}

TEST_CASE("what workers do and are done to is traced with rank, pid and reason") {
  CHECK(trace(WorkerSpawned{1, 42}) == "local rank 1 pid 42 runs");
  CHECK(trace(SignalWorker{.signal = 15, .spares_failing = 1s}) ==
        "SIGTERM to local rank 0, the process, 1s later if it fails");
  CHECK(trace(SignalWorker{1, 9, SignalScope::kDescendants}) ==
        "SIGKILL to local rank 1, all below it");
  WorkerEnded ended;
  ended.local_rank = 1;
  ended.pid = 42;
  ended.status = {ExitStatus::Kind::kSignaled, 11, false, ""};
  ended.order = 5;
  ended.run = 2s;
  CHECK(trace(ended) == "local rank 1 pid 42 ended: SIGSEGV, number 5, ran 2s");
  ended.status.core_dumped = true;
  CHECK(trace(ended) == "local rank 1 pid 42 ended: SIGSEGV (core dumped), number 5, ran 2s");
  CHECK(trace(LinkDown{"reset", false}) ==
        "stream to the server is down: reset (what answers is not Muster)");
  CHECK(trace(Finish{76, ExitClass::kServerLost, std::nullopt, "no server"}) ==
        "ends with 76, class server_lost: no server");
}

TEST_CASE("waiting for GPU memory is traced") {
  CHECK(trace(AwaitDevices{1, {100, 101}, 5s}) ==
        "looks for 5s whether the GPU memory of 2 processes is free");
  CHECK(trace(DevicesFreed{1, ""}) == "GPU memory is free for the next workers");
  CHECK(trace(DevicesFreed{1, "pid 7 holds it"}) ==
        "GPU memory is awaited no longer: pid 7 holds it");
}

TEST_CASE("a charged restart and a free one are told apart") {
  JobEvent event;
  event.body = event::RestartScheduled{1, 3, true, 2s};
  CHECK(trace(ServerSaid{{{}, JobEventNotice{event, 0s}}})
            .starts_with("received JobEventNotice: restart_scheduled, charged, in 2s"));
  event.body = event::RestartScheduled{1, 3, false, 0s};
  CHECK(trace(ServerSaid{{{}, JobEventNotice{event, 0s}}})
            .starts_with("received JobEventNotice: restart_scheduled, free, in 0s"));
}

TEST_CASE("what is said anyway, and a deadline by itself, make no line") {
  CHECK(trace(Tick{}).empty());
  CHECK(trace(ProgressSampled{}).empty());
  CHECK(trace(Say{Severity::kWarning, "x"}).empty());
}

}  // namespace muster::agent
