// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <catch2/catch.hpp>

#include "launcher/http/job_metrics.h"
#include "launcher/http/metrics_text.h"
#include "launcher/http/node_book.h"
#include "launcher/http/process_metrics.h"

namespace muster::http {
namespace {

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

std::string rendered(const NodeBook& book) {
  MetricsText out;
  book.render(out);
  return out.text();
}

JobEvent of_node(const char* node, EventBody body) {
  JobEvent event;
  event.node = node;
  event.body = std::move(body);
  return event;
}

JobEvent of_generation(Generation generation, EventBody body) {
  JobEvent event;
  event.generation = generation;
  event.body = std::move(body);
  return event;
}

event::GenerationFormed formed(std::vector<const char*> nodes, FormReason reason) {
  event::GenerationFormed body;
  for (const char* node : nodes)
    body.nodes.push_back({.node = node, .group_rank = 0, .first_rank = 0, .count = 2});
  body.world_size = static_cast<std::uint32_t>(2 * nodes.size());
  body.reason = reason;
  return body;
}

TEST_CASE("each family has its help and type once, labels are escaped, numbers are exact") {
  MetricsText out;
  out.counter("a_total", "Some text");
  out.sample(3);
  out.sample(0.1, {{"job", "a\"b\\c\nd"}, {"role", "member"}});
  out.gauge("b", "More");
  out.sample(1e21);
  CHECK(out.text() ==
        "# HELP a_total Some text\n# TYPE a_total counter\na_total 3\n"
        "a_total{job=\"a\\\"b\\\\c\\nd\",role=\"member\"} 0.1\n"
        "# HELP b More\n# TYPE b gauge\nb 1e+21\n");
}

TEST_CASE("a node is ready while its workers run, and says why it is not") {
  NodeBook book("n0", "h0:29400");
  CHECK(book.unready() == "looking for the server at h0:29400");
  book.note(of_node("n1", event::NodeJoined{}));
  CHECK(book.unready() == "looking for the server at h0:29400");
  book.note(of_node("n0", event::NodeJoined{}));
  CHECK(book.unready() == "joined; the job is not formed yet");
  book.note(of_generation(0, formed({"n0", "n1"}, FormReason::kStart)));
  CHECK(book.unready() == "generation 0 is being started");
  book.note(of_generation(0, event::GenerationRunning{}));
  CHECK(book.unready().empty());

  event::GenerationFailed failed;
  failed.first_cause.node = "n1";
  failed.first_cause.rank = 3;
  failed.first_cause.kind = FailureKind::kExit;
  failed.first_cause.exit_code = 7;
  book.note(of_generation(0, failed));
  CHECK(book.unready().find("its workers are being stopped: ") == 0);
  CHECK(book.unready().find("rank 3") != std::string::npos);
  book.note(of_generation(1, formed({"n0", "n1"}, FormReason::kWorkerFailure)));
  book.note(of_generation(1, event::GenerationRunning{}));
  CHECK(book.unready().empty());

  event::JobFinished finished;
  finished.outcome.kind = OutcomeKind::kStopped;
  book.note(of_generation(1, finished));
  CHECK(book.unready() == "the job is over: stopped");
}

TEST_CASE("a spare is ready as soon as it waits, and a node that lost its part is one") {
  NodeBook book("n2", "h0:29400");
  event::NodeJoined joined;
  joined.spare = true;
  book.note(of_node("n2", joined));
  CHECK(book.unready().empty());
  book.note(of_generation(0, formed({"n0", "n1"}, FormReason::kStart)));
  CHECK(book.unready().empty());
  book.note(of_generation(1, formed({"n0", "n2"}, FormReason::kNodeLost)));
  CHECK(book.unready() == "generation 1 is being started");
}

TEST_CASE("what happened is counted") {
  NodeBook book("n0", "h0:29400");
  CHECK(has_line(rendered(book), "muster_node_ready 0"));
  CHECK(rendered(book).find("muster_generation ") == std::string::npos);
  book.set_connected(true);
  book.note(of_node("n0", event::NodeJoined{}));
  event::JobStarted started;
  started.max_restarts = 5;
  book.note(of_generation(0, started));
  book.note(of_generation(0, formed({"n0", "n1"}, FormReason::kStart)));
  book.note(of_node("n0", event::WorkerStarted{}));
  book.note(of_node("n0", event::WorkerStarted{}));
  book.note(of_node("n1", event::WorkerStarted{}));
  book.note(of_generation(0, event::GenerationRunning{}));
  event::WorkerEnded ended;
  ended.signal = 11;
  book.note(of_node("n0", ended));
  event::GenerationFailed failed;
  failed.first_cause.kind = FailureKind::kSignal;
  book.note(of_generation(0, failed));
  event::RestartScheduled restart;
  restart.restarts_used = 1;
  restart.max_restarts = 5;
  book.note(of_generation(0, restart));
  event::Recovered recovered;
  recovered.detect = 250ms;
  recovered.spawn = 500ms;
  recovered.total = 750ms;
  book.note(of_generation(1, recovered));
  const std::string text = rendered(book);
  for (const char* line :
       {"muster_server_connected 1", "muster_workers 1", "muster_generation 0",
        "muster_world_size 4", "muster_generation_nodes 2", "muster_restarts_total 1",
        "muster_max_restarts 5", "muster_generations_formed_total{reason=\"start\"} 1",
        "muster_generation_failures_total{kind=\"signal\"} 1",
        "muster_worker_exits_total{how=\"signal\"} 1", "muster_recoveries_total 1",
        "muster_recovery_seconds_total{phase=\"detect\"} 0.25",
        "muster_recovery_seconds_total{phase=\"stop\"} 0", "muster_last_recovery_seconds 0.75"}) {
    INFO(line);
    CHECK(has_line(text, line));
  }
}

TEST_CASE("jobs of a server") {
  rendezvous::JobView live;
  live.spec.job = "a";
  live.phase = rendezvous::Phase::kRunning;
  live.generation = 2;
  live.world_size = 4;
  live.restarts_used = 1;
  live.members.resize(2);
  live.members[0].connected = true;
  live.members[0].progress = {{.rank = 0, .step = 7, .checkpoint_step = 5},
                              {.rank = 1, .step = 9, .checkpoint_step = std::nullopt}};
  live.members[1].heartbeat_age = 1500ms;
  rendezvous::JobView over;
  over.spec.job = "b";
  over.outcome.emplace();
  over.outcome->kind = OutcomeKind::kFailed;
  MetricsText out;
  render_jobs({live, over}, out);
  for (const char* line :
       {"muster_jobs{state=\"live\"} 1", "muster_jobs{state=\"over\"} 1",
        "muster_job_running{job=\"a\"} 1", "muster_job_running{job=\"b\"} 0",
        "muster_job_generation{job=\"a\"} 2", "muster_job_restarts_total{job=\"a\"} 1",
        "muster_job_outcome{job=\"b\",outcome=\"failed\"} 1",
        "muster_job_nodes{job=\"a\",role=\"member\",connected=\"true\"} 1",
        "muster_job_nodes{job=\"a\",role=\"member\",connected=\"false\"} 1",
        "muster_job_heartbeat_age_seconds{job=\"a\"} 1.5", "muster_job_lowest_step{job=\"a\"} 7",
        "muster_job_highest_step{job=\"a\"} 9", "muster_job_checkpoint_step{job=\"a\"} 5"}) {
    INFO(line);
    CHECK(has_line(out.text(), line));
  }
  CHECK(out.text().find("muster_job_generation{job=\"b\"}") == std::string::npos);
  CHECK(out.text().find("muster_job_lowest_step{job=\"b\"}") == std::string::npos);
}

TEST_CASE("this process") {
  MetricsText out;
  render_process(out);
  for (const char* name :
       {"process_cpu_seconds_total ", "process_resident_memory_bytes ", "process_open_fds "})
    CHECK(out.text().find(std::string("\n") + name) != std::string::npos);
}

}  // namespace
}  // namespace muster::http
