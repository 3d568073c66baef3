// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/spawn.h"

#include <algorithm>
#include <errno.h>
#include <fcntl.h>
#include <fstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/agent_shell_process/harness.h"

namespace muster::agent {
namespace {

// Starts `request`, waits for it, and returns its wait status.
int run_to_end(const SpawnRequest& request) {
  const SpawnResult result = spawn(request);
  REQUIRE(result.ok());
  int status = 0;
  REQUIRE(::waitpid(result.pid, &status, 0) == result.pid);
  return status;
}

// What the probe shows of itself, started with `request`'s settings.
std::string shown(SpawnRequest request, const TempFolder& folder) {
  const std::string path = folder.path("shown");
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  request.stdio.out = file.get();
  REQUIRE(run_to_end(request) == 0);
  return read_text(path);
}

SpawnRequest to_run(const std::string& program) {
  SpawnRequest request = probe_request({}).spawn;
  request.program = program;
  return request;
}

void write_file(const std::string& path, const std::string& text, mode_t mode) {
  std::ofstream(path) << text;
  REQUIRE(::chmod(path.c_str(), mode) == 0);
}

TEST_CASE("a spawned program has what it is given and nothing else") {
  const TempFolder folder;
  starting_state();
  const UniqueFd leak(::open("/dev/null", O_RDONLY));  // not close-on-exec
  const std::string text = shown(probe_request({"show"}).spawn, folder);
  CHECK(text.find("session_leader=1\n") != std::string::npos);
  CHECK(text.find("death_signal=9\n") != std::string::npos);
  CHECK(text.find("fds=0,1,2,\n") != std::string::npos);
  // This program blocks stop signals and ignores SIGPIPE by now; workers see the state before.
  std::string blocked;
  std::string ignored;
  for (int signal = 1; signal <= 31; ++signal) {
    if (sigismember(&starting_state().mask, signal) == 1) blocked += std::to_string(signal) + ",";
    if (starting_state().was_ignored(signal)) ignored += std::to_string(signal) + ",";
  }
  CHECK(text.find("blocked=" + blocked + "\n") != std::string::npos);
  CHECK(text.find("ignored=" + ignored + "\n") != std::string::npos);
}

TEST_CASE("mask, dispositions, umask and limits of the start are restored") {
  const TempFolder folder;
  SpawnRequest request = probe_request({"show"}).spawn;
  sigemptyset(&request.start.mask);
  sigaddset(&request.start.mask, SIGUSR2);
  request.start.ignored = std::uint64_t{1} << (SIGHUP - 1);
  request.start.umask = 027;
  request.start.limits[RLIMIT_NOFILE].rlim_cur = 77;
  const std::string text = shown(request, folder);
  CHECK(text.find("blocked=12,\n") != std::string::npos);
  CHECK(text.find("ignored=1,\n") != std::string::npos);
  CHECK(text.find("umask=027\n") != std::string::npos);
  CHECK(text.find("nofile=77\n") != std::string::npos);
  rlimit ours{};
  ::getrlimit(RLIMIT_NOFILE, &ours);
  CHECK(ours.rlim_cur != 77);
}

TEST_CASE("standard descriptors may be crossed") {
  // 1 and 2 of the child are our 2 and 1: each must survive the other's arrangement.
  const TempFolder folder;
  const UniqueFd a(::open(folder.path("a").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const UniqueFd b(::open(folder.path("b").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const UniqueFd kept_out(::dup(1));
  const UniqueFd kept_err(::dup(2));
  ::dup2(a.get(), 1);
  ::dup2(b.get(), 2);
  SpawnRequest request = shell_request("echo out; echo err >&2").spawn;
  request.stdio.out = 2;
  request.stdio.err = 1;
  const SpawnResult result = spawn(request);
  ::dup2(kept_out.get(), 1);
  ::dup2(kept_err.get(), 2);
  REQUIRE(result.ok());
  ::waitpid(result.pid, nullptr, 0);
  CHECK(read_text(folder.path("a")) == "err\n");
  CHECK(read_text(folder.path("b")) == "out\n");
}

TEST_CASE("many are begun before the first is waited for, and each has its own end") {
  constexpr int kCount = 60;
  std::vector<std::unique_ptr<Spawn>> begun;
  for (int i = 0; i < kCount; ++i) {
    const bool missing = i % 7 == 3;
    SpawnRequest request = to_run(missing ? "/no/such/program" : "/bin/sh");
    request.argv = {"sh", "-c", "exit " + std::to_string(i)};
    begun.push_back(Spawn::begin(request));
    REQUIRE(begun.back()->pid() > 0);
  }
  for (int i = kCount - 1; i >= 0; --i) {
    const SpawnResult result = begun.at(static_cast<std::size_t>(i))->finish();
    if (i % 7 == 3) {
      CHECK(result.error == ENOENT);
      CHECK(result.pid == -1);
      continue;
    }
    int status = 0;
    REQUIRE(::waitpid(result.pid, &status, 0) == result.pid);
    CHECK(WEXITSTATUS(status) == i);
  }
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);  // none is left
}

TEST_CASE("one that nobody asks about any more is waited for all the same") {
  const std::unique_ptr<Spawn> kept = Spawn::begin(to_run("/bin/true"));
  const pid_t pid = kept->pid();
  { const std::unique_ptr<Spawn> dropped = Spawn::begin(to_run("/no/such/program")); }
  CHECK(::waitpid(pid, nullptr, 0) == pid);
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
}

TEST_CASE("a program that cannot be executed is told apart from exit 127") {
  const TempFolder folder;
  const auto failure = [](const std::string& program) { return spawn(to_run(program)); };

  const SpawnResult missing = failure(folder.path("none"));
  CHECK_FALSE(missing.ok());
  CHECK(missing.error == ENOENT);
  CHECK(missing.detail == folder.path("none") + ": No such file or directory");

  write_file(folder.path("text"), "hello\n", 0644);
  CHECK(failure(folder.path("text")).error == EACCES);

  write_file(folder.path("format"), "hello\n", 0755);
  const SpawnResult format = failure(folder.path("format"));
  CHECK(format.error == ENOEXEC);
  CHECK(format.detail.find("Exec format error") != std::string::npos);

  write_file(folder.path("script"), "#!/no/such/interpreter\n", 0755);
  const SpawnResult script = failure(folder.path("script"));
  CHECK(script.error == ENOENT);
  CHECK(script.detail.find("interpreter") != std::string::npos);

  CHECK(failure(folder.path("")).error == EACCES);  // a folder

  const int status = run_to_end(shell_request("exit 127").spawn);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 127);
  // Failed children are reaped: nobody is left to wait for.
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("bad descriptors are an error of the spawn, not of the program") {
  SpawnRequest request = probe_request({"exit", "0"}).spawn;
  request.stdio.in = 9999;
  const SpawnResult result = spawn(request);
  CHECK_FALSE(result.ok());
  CHECK(result.error == EBADF);
  CHECK(result.detail.starts_with("cannot start a process: "));
}

TEST_CASE("arguments and environment arrive byte for byte") {
  const TempFolder folder;
  SpawnRequest request = shell_request("printf '%s|' \"$0\" \"$@\" \"$ODD\"").spawn;
  request.argv.insert(request.argv.end(), {"a b", "", "\xff\x01", "$x ${local_rank} *"});
  request.environment["ODD"] = "1=2\n3";
  const std::string text = shown(request, folder);
  CHECK(text == "a b||\xff\x01|$x ${local_rank} *|1=2\n3|");
}

TEST_CASE("failed and successful spawns leak no descriptor") {
  const std::size_t before = count_descriptors();
  for (int i = 0; i < 50; ++i) {
    CHECK_FALSE(spawn(to_run("/no/such/program")).ok());
    run_to_end(probe_request({"exit", "0"}).spawn);
  }
  CHECK(count_descriptors() == before);
}

// Not a test of speed, which a busy machine would fail: prints what scripts/bench measures too.
TEST_CASE("four spawns", "[.bench]") {
  std::vector<Duration> taken;
  for (int round = 0; round < 50; ++round) {
    std::vector<pid_t> pids;
    const Instant begin = IoLoop::now();
    for (int i = 0; i < 4; ++i)
      pids.push_back(spawn(to_run("/bin/true")).pid);
    taken.push_back(IoLoop::now() - begin);
    for (const pid_t pid : pids)
      ::waitpid(pid, nullptr, 0);
  }
  std::sort(taken.begin(), taken.end());
  WARN("four spawns: median " << to_seconds(taken[25]) * 1000 << " ms");
}

}  // namespace
}  // namespace muster::agent
