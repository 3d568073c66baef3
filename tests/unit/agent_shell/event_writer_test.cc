// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/event_writer.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <signal.h>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.h"

namespace muster {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  return lines;
}

JobEvent failed_event() {
  Failure cause;
  cause.kind = FailureKind::kSignal;
  cause.node = "b";
  cause.rank = 5;
  cause.local_rank = 1;
  cause.pid = 4711;
  cause.signal = 11;
  cause.stderr_tail = "bad \"luck\"\n";
  Failure victim;
  victim.node = "a";
  victim.rank = 0;
  victim.exit_code = 1;
  JobEvent event;
  event.generation = 2;
  event.body = event::GenerationFailed{cause, {victim}};
  return event;
}

}  // namespace

TEST_CASE("a time is written in UTC with microseconds") {
  CHECK(format_utc(0) == "1970-01-01T00:00:00.000000Z");
  CHECK(format_utc(1'769'860'800'000'123) == "2026-01-31T12:00:00.000123Z");
  CHECK(format_utc(-1) == "1969-12-31T23:59:59.999999Z");
}

TEST_CASE("a line holds the common fields first, then the event's own") {
  const EventStamp stamp{1'769'860'800'000'123, 7, "train", "20260131T120000Z-00ff"};
  CHECK(render_event(stamp, failed_event()) ==
        R"({"schema":1,"ts":"2026-01-31T12:00:00.000123Z","seq":7,"job":"train",)"
        R"("run":"20260131T120000Z-00ff","event":"generation_failed","generation":2,)"
        R"("first_cause":{"node":"b","rank":5,"local_rank":1,"pid":4711,"kind":"signal",)"
        R"("signal":"SIGSEGV","stderr_tail":"bad \"luck\"\n","ambiguous":false},)"
        R"("victims":[{"node":"a","rank":0,"kind":"exit","exit_code":1,"stderr_tail":"",)"
        R"("ambiguous":false}]})");
}

TEST_CASE("a core dump is told where there is one") {
  Failure failure;
  failure.kind = FailureKind::kSignal;
  failure.signal = 6;
  CHECK(render_failure(failure).find("core_dumped") == std::string::npos);
  failure.core_dumped = true;
  CHECK(render_failure(failure).find(R"("signal":"SIGABRT","core_dumped":true,)") !=
        std::string::npos);
}

TEST_CASE("every event has the fields of the contract") {
  struct Case {
    EventBody body;
    const char* fields;  // what follows "event":"…"
  };
  Outcome outcome;
  outcome.kind = OutcomeKind::kFailed;
  outcome.exit_code = 137;
  outcome.exit_class = ExitClass::kWorker;
  outcome.restarts_used = 2;
  outcome.duration = 1500ms;
  outcome.goodput = 0.5;
  const std::vector<Case> cases{
      {event::JobStarted{1, 2, 3},
       R"("job_started","min_nodes":1,"max_nodes":2,"max_restarts":3})"},
      {event::NodeJoined{"h", "10.0.0.1", 8, true, 4},
       R"("node_joined","host":"h","addr":"10.0.0.1","slots":8,"role":"spare","incarnation":4})"},
      {event::NodeLeft{event::NodeLeft::Why::kLost}, R"("node_left","reason":"lost"})"},
      {event::GenerationFormed{3, {{"a", 0, 0, 3}}, "10.0.0.1", 20001, FormReason::kNodeLost},
       R"("generation_formed","world_size":3,"nodes":[{"node":"a","group_rank":0,"first_rank":0,)"
       R"("count":3}],"master_addr":"10.0.0.1","master_port":20001,"reason":"node_lost"})"},
      {event::WorkerStarted{"/bin/true"}, R"("worker_started","argv0":"/bin/true"})"},
      {event::WorkerEnded{std::nullopt, 9, true, 4096, 250ms, "/logs/stacks.txt"},
       R"("worker_exited","signal":"SIGKILL","torn_down":true,"max_rss_bytes":4096,"run_s":0.25,)"
       R"("stacks":"/logs/stacks.txt"})"},
      {event::WorkerEnded{3, std::nullopt, false, 0, 1s, ""},
       R"("worker_exited","exit_code":3,"torn_down":false,"max_rss_bytes":0,"run_s":1.0})"},
      {event::GenerationRunning{500ms, 125ms},
       R"("generation_running","form_s":0.5,"spawn_s":0.125})"},
      {event::RestartScheduled{1, 3, true, 2s},
       R"("restart_scheduled","restarts_used":1,"max_restarts":3,"charged":true,"delay_s":2.0})"},
      {event::Recovered{1s, 2s, 3s, 4s, 10s, std::nullopt},
       R"("recovered","detect_s":1.0,"stop_s":2.0,"form_s":3.0,"spawn_s":4.0,"total_s":10.0})"},
      {event::Recovered{1s, 2s, 3s, 4s, 10s, 12s},
       R"("recovered","detect_s":1.0,"stop_s":2.0,"form_s":3.0,"spawn_s":4.0,"total_s":10.0,)"
       R"("first_progress_s":12.0})"},
      {event::ChaosHit{R"({"do":"kill"})", "rank 1"},
       R"("chaos_fired","fault":{"do":"kill"},"target":"rank 1"})"},
      {event::ChaosMissed{"not json", "node b"},
       R"("chaos_unfired","fault":"not json","target":"node b"})"},
      {event::StateLost{"fresh"}, R"("state_lost","reason":"fresh"})"},
      {event::NodeQuarantined{1768642200000000, "twice"},
       R"("node_quarantined","until":"2026-01-17T09:30:00.000000Z","reason":"twice"})"},
      {event::ServerRecovered{"again"}, R"("server_recovered","reason":"again"})"},
      {event::ServerGoing{"told to"}, R"("server_leaving","reason":"told to"})"},
      {event::JobFinished{outcome},
       R"("job_finished","outcome":"failed","exit_code":137,"exit_class":"worker",)"
       R"("restarts_used":2,"duration_s":1.5,"goodput":0.5})"}};
  for (const Case& wanted : cases) {
    JobEvent event;
    event.body = wanted.body;
    const std::string line = render_event({0, 1, "j", "r"}, event);
    CHECK(line.substr(line.find("\"event\":") + 8) == wanted.fields);
  }
}

TEST_CASE("bytes that are not UTF-8 do not break a line") {
  JobEvent event;
  event.body = event::StateLost{std::string("a\xff\x00z\n", 5)};
  const std::string line = render_event({0, 1, "j\xfe", "r"}, event);
  CHECK(line.find('\n') == std::string::npos);
  CHECK_NOTHROW(nlohmann::json::parse(line));
}

TEST_CASE("names become single path components") {
  CHECK(path_component("train-7.b") == "train-7.b");
  CHECK(path_component("") == "_");
  CHECK(path_component("..").find('.') == 1);
  CHECK(path_component("a/b").find('/') == std::string::npos);
  CHECK(path_component("a/b") != path_component("a_b"));
  CHECK(path_component("a/b") != path_component("a:b"));
  CHECK(path_component(std::string(5000, 'x')).size() < 220);
  CHECK(path_component("a/b") == path_component("a/b"));
}

TEST_CASE("events are appended, and the names in the target replaced") {
  const testing::TempDir dir;
  const std::string target = dir.path() + "/{job}-{node}-{run}.jsonl";
  {
    EventWriter writer(target, "n1", "j1");
    REQUIRE(writer.write("r1", failed_event()).ok());
    REQUIRE(writer.write("r1", failed_event()).ok());
    REQUIRE(writer.write("r2", failed_event()).ok());
  }
  {
    EventWriter again(target, "n1", "j1");
    REQUIRE(again.write("r1", failed_event()).ok());
  }
  const auto first = lines_of(dir.path() + "/j1-n1-r1.jsonl");
  REQUIRE(first.size() == 3);
  CHECK(nlohmann::json::parse(first[0])["seq"] == 1);
  CHECK(nlohmann::json::parse(first[1])["seq"] == 2);
  CHECK(lines_of(dir.path() + "/j1-n1-r2.jsonl").size() == 1);
}

TEST_CASE("a target that cannot be opened is told once") {
  EventWriter writer("/proc/nowhere/events", "n", "j");
  CHECK_FALSE(writer.write("r", failed_event()).ok());
  CHECK(writer.write("r", failed_event()).ok());
}

TEST_CASE("a full pipe never blocks, and gets every line once it is read") {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/fifo";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(reader >= 0);
  constexpr int kLines = 1000;  // some 400 bytes each: more than a pipe holds
  {
    EventWriter writer(path, "n", "j");
    for (int i = 0; i < kLines; ++i)
      REQUIRE(writer.write("r", failed_event()).ok());
    std::string got;
    std::vector<char> buffer(1U << 16U);
    int newlines = 0;
    while (newlines < kLines) {
      writer.flush(0);
      const ssize_t count = ::read(reader, buffer.data(), buffer.size());
      REQUIRE(count > 0);
      for (ssize_t i = 0; i < count; ++i)
        newlines += buffer[static_cast<std::size_t>(i)] == '\n';
      got.append(buffer.data(), static_cast<std::size_t>(count));
    }
    CHECK(got.find("\"seq\":1000,") != std::string::npos);
  }
  ::close(reader);
}

TEST_CASE("a line that a full disk cut ends before the next one begins") {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/events";
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  struct sigaction ignore {};
  struct sigaction old {};
  ignore.sa_handler = SIG_IGN;
  REQUIRE(::sigaction(SIGXFSZ, &ignore, &old) == 0);
  {
    EventWriter writer(path, "a", "job");
    REQUIRE(writer.write("run", failed_event()).ok());
    const auto size = std::filesystem::file_size(path);
    rlimit full = before;
    full.rlim_cur = size + 40;  // room for a part of the next line
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
    CHECK_FALSE(writer.write("run", failed_event()).ok());
    CHECK(writer.write("run", failed_event()).ok());  // lost too; said once
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(writer.write("run", failed_event()).ok());
    CHECK(writer.write("run", failed_event()).ok());
  }
  REQUIRE(::sigaction(SIGXFSZ, &old, nullptr) == 0);
  const std::vector<std::string> lines = lines_of(path);
  REQUIRE(lines.size() == 4);
  for (const std::size_t whole : {std::size_t{0}, std::size_t{2}, std::size_t{3}})
    CHECK(nlohmann::json::accept(lines[whole]));
  CHECK(nlohmann::json::parse(lines[2])["seq"] == 4);
}

}  // namespace muster
