// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/agent_runner.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/unit/agent_shell/runner_fixture.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;
using muster::testing::content_of;
using muster::testing::lines_of;
using muster::testing::OneNode;

// `lines` counted in a file that workers append to.
bool has_lines(const std::string& path, std::size_t count) {
  return lines_of(path).size() >= count;
}

Fault fault(FaultAction action, std::uint32_t rank) {
  Fault out;
  out.action = action;
  out.on.rank = rank;
  out.text = R"({"do":"test"})";
  return out;
}

}  // namespace

TEST_CASE("four workers run to a success and leave nothing") {
  OneNode job(4, "echo rank $RANK of $WORLD_SIZE");
  const RunResult result = job.run();
  CHECK(result.exit_code == 0);
  CHECK(result.exit_class == ExitClass::kSucceeded);
  auto lines = lines_of(job.path("out"));
  std::sort(lines.begin(), lines.end());
  CHECK(lines ==
        std::vector<std::string>{"rank 0 of 4", "rank 1 of 4", "rank 2 of 4", "rank 3 of 4"});
  CHECK(job.events("\"worker_started\"").size() == 4);
  CHECK(job.events("\"worker_exited\"").size() == 4);
  CHECK(job.events("\"job_finished\"").size() == 1);
  CHECK_FALSE(fs::exists(job.path("logs")));
  REQUIRE(job.server.outcome());
}

TEST_CASE("a worker finds its private files") {
  OneNode job(1,
              "test -d \"$MUSTER_RUN_DIR\" && test -s \"$MUSTER_PROGRESS_FILE\" &&"
              " test ! -e \"$MUSTER_STOP_FILE\" && test ! -e \"$TORCHELASTIC_ERROR_FILE\" &&"
              " touch \"$MUSTER_RUN_DIR/mine\" && mkdir -p \"$MUSTER_RUN_DIR/a/b\" &&"
              " chmod 0 \"$MUSTER_RUN_DIR/a\" && ls -l /proc/self/fd > \"$OUT/fds\"");
  CHECK(job.run().exit_code == 0);
  // "total 0", 0, 1, 2, and the one that ls itself has open.
  CHECK(lines_of(job.path("fds")).size() == 5);
}

TEST_CASE("a failure restarts all workers, and its last words stay") {
  OneNode job(2,
              "if [ $MUSTER_GENERATION = 0 ]; then"
              "  if [ $RANK = 1 ]; then echo bad luck >&2; exit 7; fi; sleep 600; fi");
  job.config.spec.policy.max_restarts = 1;
  const RunResult result = job.run();
  CHECK(result.exit_code == 0);
  const std::string run = job.path("logs") + "/job/latest";
  CHECK(content_of(run + "/gen-0/rank-1/stderr.log") == "bad luck\n");
  const auto meta = nlohmann::json::parse(content_of(run + "/gen-0/rank-1/meta.json"));
  CHECK(meta["local_rank"] == 1);
  CHECK_FALSE(fs::exists(run + "/gen-0/rank-0"));  // stopped by us: not a failure of its own
  CHECK_FALSE(fs::exists(run + "/gen-1"));
  CHECK(content_of(run + "/agent.log").find("rank 1") != std::string::npos);
  const auto failed = job.events("\"generation_failed\"");
  REQUIRE(failed.size() == 1);
  CHECK(nlohmann::json::parse(failed[0])["first_cause"]["stderr_tail"] == "bad luck");
  const auto victims = nlohmann::json::parse(failed[0])["victims"];
  REQUIRE(victims.size() == 1);
  CHECK(victims[0]["torn_down"] == true);
  CHECK(job.events("\"recovered\"").size() == 1);
}

TEST_CASE("a used-up budget ends with the worker's code and the failure block, last") {
  OneNode job(1, "echo going down >&2; exit 9");
  const std::string own = job.path("own-error.json");
  job.options.own_error_file = own;
  const RunResult result = job.run();
  CHECK(result.exit_code == 9);
  CHECK(result.exit_class == ExitClass::kWorker);
  const std::string err = job.err();
  const std::size_t block = err.find("muster: job job failed\n");
  REQUIRE(block != std::string::npos);
  CHECK(err.find("going down") < block);
  const std::string text = err.substr(block);
  CHECK(text.find("  first cause: rank 0 (node n1, local rank 0, pid ") != std::string::npos);
  CHECK(text.find("exit code 9") != std::string::npos);
  CHECK(text.find("    | going down\n") != std::string::npos);
  CHECK(text.find("  logs: " + job.path("logs") + "/job/run-") != std::string::npos);
  CHECK(err.ends_with("\n"));
  CHECK_FALSE(fs::exists(own));  // the worker wrote none
}

TEST_CASE("a worker's error.json is read, kept and handed on") {
  const std::string text = R"({"message": {"message": "ValueError: no such shard"}})";
  OneNode job(1, "echo '" + text + "' > $TORCHELASTIC_ERROR_FILE; exit 4");
  job.options.own_error_file = job.path("own-error.json");
  CHECK(job.run().exit_code == 4);
  CHECK(job.err().find("it reported: ValueError: no such shard") != std::string::npos);
  CHECK(content_of(job.path("own-error.json")) == text + "\n");
  CHECK(content_of(job.path("logs") + "/job/latest/gen-0/rank-0/error.json") == text + "\n");
}

TEST_CASE("a malformed error.json costs a line and nothing else") {
  OneNode job(1, "echo '{\"mess' > $TORCHELASTIC_ERROR_FILE; exit 4");
  CHECK(job.run().exit_code == 4);
  CHECK(job.err().find("error.json: not JSON") != std::string::npos);
}

TEST_CASE("how a worker ends becomes the exit code") {
  SECTION("by a signal") {
    OneNode job(1, "kill -SEGV $$");
    CHECK(job.run().exit_code == 139);
    CHECK(job.err().find("SIGSEGV (invalid memory access)") != std::string::npos);
  }
  SECTION("program not found") {
    OneNode job(2, "");
    job.config.argv = {"/nowhere/program"};
    job.config.spec.policy.max_restarts = 3;
    CHECK(job.run().exit_code == 127);
    CHECK(job.err().find("/nowhere/program") != std::string::npos);
    CHECK(job.events("\"restart_scheduled\"").empty());
  }
  SECTION("program not executable") {
    OneNode job(1, "");
    std::ofstream(job.path("plain")) << "text";
    job.config.argv = {job.path("plain")};
    CHECK(job.run().exit_code == 126);
  }
  SECTION("flat") {
    OneNode job(1, "exit 9");
    job.config.exit_code = ExitCodeMode::kFlat;
    CHECK(job.run().exit_code == 1);
  }
}

TEST_CASE("without a scratch folder the job ends and says why") {
  OneNode job(1, "exit 0");
  job.options.scratch_path = "/proc/nowhere/muster-x";
  const RunResult result = job.run();
  CHECK(result.exit_code == 70);
  CHECK(job.err().find("cannot create /proc/nowhere/muster-x") != std::string::npos);
}

TEST_CASE("a log folder that cannot be made costs a line, and the console has the output") {
  OneNode job(2, "echo fine");
  job.options.streams = [](std::uint32_t) {
    return WorkerStreams{.stdout_file = true, .stdout_console = false};
  };
  job.options.log_dir = "/proc/nowhere";
  job.options.log_dir_given = true;
  CHECK(job.run().exit_code == 0);
  CHECK(job.out() == "fine\nfine\n");
  const std::string err = job.err();
  const std::size_t line = err.find("cannot create /proc/nowhere");
  REQUIRE(line != std::string::npos);
  CHECK(err.find("(--log-dir)", line) != std::string::npos);
  CHECK(err.find("cannot create", line + 1) == std::string::npos);
}

// ---------------------------------------------------------------- stopping

TEST_CASE("a signal stops the workers and becomes the exit code") {
  OneNode job(2,
              "trap 'echo got it; exit 0' TERM; echo up >> $OUT/up; while :; do sleep 0.1; done");
  job.options.signals = {SIGTERM};
  job.start();
  job.until([&] { return has_lines(job.path("up"), 2); });
  REQUIRE(::kill(::getpid(), SIGTERM) == 0);  // through the signalfd, as from outside
  const RunResult result = job.finish();
  CHECK(result.exit_code == 128 + SIGTERM);
  CHECK(result.exit_class == ExitClass::kSignal);
  CHECK(job.out() == "got it\ngot it\n");
}

TEST_CASE("a worker that ignores the signal is killed after the grace, with all its descent") {
  OneNode job(1,
              "trap '' TERM; (setsid sleep 600 & echo up >> $OUT/up);"
              " while :; do sleep 0.1; done");
  job.config.spec.policy.stop_grace = 200ms;
  job.start();
  job.until([&] { return has_lines(job.path("up"), 1); });
  job.runner->signal(SIGTERM);
  CHECK(job.finish().exit_code == 128 + SIGTERM);
}

TEST_CASE("the stop file is there before the signal") {
  OneNode job(1,
              "trap 'test -e $MUSTER_STOP_FILE && echo planned; exit 0' TERM;"
              " echo up >> $OUT/up; while :; do sleep 0.1; done");
  job.start();
  job.until([&] { return has_lines(job.path("up"), 1); });
  job.runner->signal(SIGTERM);
  job.finish();
  CHECK(job.out() == "planned\n");
}

TEST_CASE("forwarded signals reach the workers and end nothing") {
  OneNode job(1, "trap 'echo usr; exit 0' USR1; echo up >> $OUT/up; while :; do sleep 0.1; done");
  job.options.signals = {SIGUSR1};
  job.config.forward_signals = {SIGUSR1};
  job.start();
  job.until([&] { return has_lines(job.path("up"), 1); });
  REQUIRE(::kill(::getpid(), SIGUSR1) == 0);
  CHECK(job.finish().exit_code == 0);
  CHECK(job.out() == "usr\n");
}

TEST_CASE("a runner that is destroyed takes its workers along") {
  OneNode job(2, "(setsid sleep 600 &) ; echo up >> $OUT/up; sleep 600");
  job.start();
  job.until([&] { return has_lines(job.path("up"), 2); });
  job.runner.reset();
}

TEST_CASE("a runner may be destroyed at any turn of the loop") {
  for (int turns = 0; turns < 40; ++turns) {
    OneNode job(2, "exit 1");
    job.config.spec.policy.max_restarts = 2;
    job.start();
    for (int i = 0; i < turns; ++i)
      job.io.run_one_for(5ms);
  }
}

// ---------------------------------------------------------------- link

TEST_CASE("a server that never answers is given up at the join time-out") {
  OneNode job(1, "exit 0");
  job.config.spec.policy.join_timeout = 300ms;
  job.server.refuse(true);
  const RunResult result = job.run();
  CHECK(result.exit_code == 75);
  CHECK(result.exit_class == ExitClass::kJoinTimeout);
  CHECK(job.err().starts_with("muster: "));
}

TEST_CASE("a broken stream is opened again and the workers go on") {
  OneNode job(1, "echo up >> $OUT/up; while [ ! -e $OUT/go ]; do sleep 0.02; done");
  job.config.spec.policy.reconnect_grace = 10s;
  job.start();
  job.until([&] { return has_lines(job.path("up"), 1); });
  job.server.cut();
  job.until([&] { return job.runner->view().connected; });
  std::ofstream(job.path("go")) << "x";
  CHECK(job.finish().exit_code == 0);
  CHECK(lines_of(job.path("up")).size() == 1);
}

TEST_CASE("without the server for its grace, workers are killed: 76") {
  OneNode job(2, "echo up >> $OUT/up; sleep 600");
  job.config.spec.policy.server_grace = 300ms;
  job.config.spec.policy.heartbeat = 100ms;
  job.start();
  job.until([&] { return has_lines(job.path("up"), 2); });
  job.server.refuse(true);
  job.server.cut();
  const RunResult result = job.finish();
  CHECK(result.exit_code == 76);
  CHECK(result.exit_class == ExitClass::kServerLost);
}

// ---------------------------------------------------------------- faults

TEST_CASE("kill after a time: fires once, and the restart is whole") {
  OneNode job(2, "[ $MUSTER_GENERATION = 1 ] || sleep 600");
  job.config.spec.policy.max_restarts = 1;
  Fault kill = fault(FaultAction::kKill, 1);
  kill.when.after = 30ms;
  job.config.spec.faults.faults = {kill};
  CHECK(job.run().exit_code == 0);
  CHECK(job.events("\"chaos_fired\"").size() == 1);
  const auto failed = job.events("\"generation_failed\"");
  REQUIRE(failed.size() == 1);
  const auto cause = nlohmann::json::parse(failed[0])["first_cause"];
  CHECK(cause["signal"] == "SIGKILL");
  CHECK(cause["rank"] == 1);
}

TEST_CASE("kill at a step: exactly there where the worker uses report()") {
  OneNode job(2,
              "exec python3 -c '\n"
              "import os\n"
              "from progress import report\n"
              "for step in range(1, 200):\n"
              "    open(os.environ[\"OUT\"] + \"/steps-\" + os.environ[\"RANK\"] + \"-\"\n"
              "         + os.environ[\"MUSTER_GENERATION\"], \"a\").write(f\"{step}\\n\")\n"
              "    report(step)\n'");
  job.config.environment["PYTHONPATH"] = MUSTER_SOURCE_DIR "/worker_runtime";
  job.config.environment["PYTHONDONTWRITEBYTECODE"] = "1";
  job.config.spec.policy.max_restarts = 1;
  Fault kill = fault(FaultAction::kKill, 1);
  kill.when.step = 130;
  job.config.spec.faults.faults = {kill};
  CHECK(job.run().exit_code == 0);
  CHECK(lines_of(job.path("steps-1-0")).back() == "130");
  CHECK(lines_of(job.path("steps-1-1")).back() == "199");
  CHECK(job.events("\"chaos_fired\"").size() == 1);
}

TEST_CASE("kill at a step: soon after it where the worker only writes steps") {
  OneNode job(1,
              "[ $MUSTER_GENERATION = 1 ] && exit 0\n"
              "exec python3 -c '\n"
              "import mmap, os, struct, time\n"
              "file = open(os.environ[\"MUSTER_PROGRESS_FILE\"], \"r+b\")\n"
              "words = memoryview(mmap.mmap(file.fileno(), 4096)).cast(\"Q\")\n"
              "words[0] = 0x314750525453554D\n"
              "step = 0\n"
              "while True:\n"
              "    step += 1\n"
              "    words[1] = step\n"
              "    time.sleep(0.001)\n'");
  job.config.spec.policy.max_restarts = 1;
  Fault kill = fault(FaultAction::kKill, 0);
  kill.when.step = 20;
  job.config.spec.faults.faults = {kill};
  CHECK(job.run().exit_code == 0);
  CHECK(job.events("\"chaos_fired\"").size() == 1);
}

TEST_CASE("stop holds a worker for its time") {
  std::string work;
  SECTION("by its own hand, inside report()") {
    work = "report(1)";
  }
  SECTION("by the agent's, where the worker only writes steps") {
    work =
        "words = memoryview(mmap.mmap(file.fileno(), 4096)).cast(\"Q\")\n"
        "words[0] = 0x314750525453554D; words[1] = 1\n"
        "while time.monotonic() - last < 0.29:\n"
        "    last = time.monotonic(); time.sleep(0.01)\n";
  }
  OneNode job(1,
              "exec python3 -c '\n"
              "import mmap, os, time\n"
              "from progress import report\n"
              "file = open(os.environ[\"MUSTER_PROGRESS_FILE\"], \"r+b\")\n"
              "last = time.monotonic()\n" +
                  work + "\nraise SystemExit(0 if time.monotonic() - last >= 0.29 else 5)\n'");
  job.config.environment["PYTHONPATH"] = MUSTER_SOURCE_DIR "/worker_runtime";
  job.config.environment["PYTHONDONTWRITEBYTECODE"] = "1";
  Fault stop = fault(FaultAction::kStop, 0);
  stop.when.step = 1;
  stop.lasts = 300ms;
  job.config.spec.faults.faults = {stop};
  CHECK(job.run().exit_code == 0);
  CHECK(job.events("\"chaos_fired\"").size() == 1);
}

TEST_CASE("kill-agent ends this process, after it said so") {
  muster::testing::TempDir dir;
  const std::string record = dir.path() + "/record";
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("TMPDIR", dir.path().c_str(), 1);  // nobody will remove the child's own folder
    OneNode job(2, "exec sleep 600");           // below the leaders only the guardian would kill
    job.options.scratch_path = dir.path() + "/muster-scratch";
    Fault kill;
    kill.action = FaultAction::kKillAgent;
    kill.on.node = "n1";
    kill.when.after = 10ms;
    kill.text = "{}";
    job.config.spec.faults.faults = {kill};
    job.server.on_event([&](const JobEvent& event) {
      if (std::holds_alternative<event::ChaosHit>(event.body)) std::ofstream(record) << "hit";
    });
    job.run();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
  CHECK(content_of(record) == "hit");
  // Its workers die with it; orphans, they come to us.
  while (::waitpid(-1, &status, 0) > 0) {
    CHECK(WIFSIGNALED(status));
  }
}

// ---------------------------------------------------------------- logs

TEST_CASE("redirected output goes to files, of every generation its own") {
  // Rank 0 fails in generation 0, but not before rank 1 has written.
  OneNode job(2,
              "echo out $RANK; echo err $RANK >&2; touch $OUT/wrote-$MUSTER_GENERATION-$RANK\n"
              "[ $MUSTER_GENERATION = 1 ] && exit 0; [ $RANK = 1 ] && exec sleep 600\n"
              "while [ ! -e $OUT/wrote-0-1 ]; do sleep 0.01; done; exit 1");
  job.config.spec.policy.max_restarts = 1;
  job.options.log_dir_given = true;
  job.options.streams = [](std::uint32_t local_rank) {
    return local_rank == 0 ? WorkerStreams{true, true, false, false}
                           : WorkerStreams{true, false, true, true};
  };
  CHECK(job.run().exit_code == 0);
  const std::string run = job.path("logs") + "/job/latest";
  for (const char* generation : {"/gen-0", "/gen-1"}) {
    CHECK(content_of(run + generation + "/rank-0/stdout.log") == "out 0\n");
    CHECK(content_of(run + generation + "/rank-0/stderr.log") == "err 0\n");
    CHECK(content_of(run + generation + "/rank-1/stdout.log") == "out 1\n");
    CHECK(fs::exists(run + generation + "/rank-1/meta.json"));
  }
  CHECK(job.out().find("out 0") == std::string::npos);
  CHECK(job.out().find("out 1") != std::string::npos);
}

TEST_CASE("a run opens and closes what it needs: no descriptor stays") {
  const auto count = [] {
    const fs::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = count();
  for (int i = 0; i < 3; ++i) {
    OneNode job(3, "echo x; exit $((1 - MUSTER_GENERATION))");
    job.config.spec.policy.max_restarts = 1;
    CHECK(job.run().exit_code == 0);
  }
  CHECK(count() == before);
}

}  // namespace muster::agent
