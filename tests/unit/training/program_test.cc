// SPDX-License-Identifier: Apache-2.0
//
// muster-train as a process: what it prints, what it answers to signals, what it leaves behind.
#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <signal.h>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/unit/training/scratch.h"

namespace muster::runtime {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Scratch;
using Words = std::vector<std::string>;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// One muster-train; its output goes to files in a directory of the test's.
class Program {
 public:
  Program(const Scratch& dir, const Words& arguments, const Words& environment = {})
      : out_(dir / "out"), err_(dir / "err") {
    std::vector<std::string> words = {std::string(MUSTER_BIN_DIR) + "/muster-train"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    pid_ = ::fork();
    if (pid_ != 0) return;
    redirect(out_, STDOUT_FILENO);
    redirect(err_, STDERR_FILENO);
    for (const char* name : {"RANK", "WORLD_SIZE", "MUSTER_RUN_ID", "MUSTER_GENERATION"}) {
      ::unsetenv(name);
    }
    for (const std::string& variable : environment) {
      ::putenv(const_cast<char*>(variable.c_str()));  // the child execs before it goes
    }
    std::vector<char*> argv;
    for (std::string& word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ~Program() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  // Waits until standard output has this many lines. False: the program ended before.
  bool until_lines(std::ptrdiff_t count) const {
    for (;;) {
      const std::string text = contents(out_);
      if (std::count(text.begin(), text.end(), '\n') >= count) return true;
      siginfo_t info{};
      if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
          info.si_pid != 0) {
        return false;
      }
      ::usleep(2000);
    }
  }
  // The exit code, or minus the signal.
  int wait() {
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string out() const { return contents(out_); }
  std::string err() const { return contents(err_); }
  json last_line() const {
    const std::string text = out();
    const std::size_t end = text.find_last_not_of('\n');
    const std::size_t begin = text.rfind('\n', end);
    return json::parse(text.substr(begin == std::string::npos ? 0 : begin + 1));
  }

 private:
  static void redirect(const std::string& path, int fd) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(file, fd);
    ::close(file);
  }

  std::string out_;
  std::string err_;
  pid_t pid_ = -1;
};

Words nano(const Scratch& dir, const Words& settings = {}) {
  const std::string text = contents(std::string(MUSTER_SOURCE_DIR) + "/LICENSE");
  Words words = {"--config", std::string(MUSTER_SOURCE_DIR) + "/configs/gpt-nano.json",
                 "--set",    "data.path=" + dir.write("corpus", text + text),
                 "--set",    "checkpoint.dir=" + (dir / "checkpoints"),
                 "--set",    "checkpoint.every_steps=4",
                 "--set",    "steps=10"};
  for (const std::string& setting : settings) {
    words.push_back("--set=" + setting);
  }
  return words;
}

std::string undisturbed_hash() {
  const Scratch dir;
  Program program(dir, nano(dir));
  REQUIRE(program.wait() == 0);
  return program.last_line()["param_hash"];
}

TEST_CASE("a program that is killed, or asked to stop, goes on to the same end") {
  const std::string expected = undisturbed_hash();
  for (const int number : {SIGKILL, SIGTERM, SIGINT}) {
    INFO("signal " << number);
    const Scratch dir;
    {
      Program program(dir, nano(dir, {"steps=100000", "scheduler.params.total_num_steps=60"}));
      REQUIRE(program.until_lines(5));
      program.signal(number);
      CHECK(program.wait() == (number == SIGKILL ? -SIGKILL : 143));
      if (number == SIGKILL) continue;
      CHECK(program.last_line()["stopped"] == true);
      const std::uint64_t step = program.last_line()["step"];
      CHECK(fs::exists(dir / "checkpoints/step-" + std::to_string(step) + "/manifest.json"));
    }
  }
  const Scratch dir;
  {
    Program program(dir, nano(dir));
    REQUIRE(program.until_lines(5));
    program.signal(SIGKILL);
    program.wait();
  }
  Program rest(dir, nano(dir));
  REQUIRE(rest.wait() == 0);
  CHECK(rest.last_line()["param_hash"] == expected);
}

TEST_CASE("launched, a signal out of the blue ends at once as a victim") {
  const Scratch dir;
  Program program(dir, nano(dir, {"steps=100000"}),
                  {"RANK=0", "WORLD_SIZE=1", "TORCHELASTIC_ERROR_FILE=" + (dir / "error.json")});
  REQUIRE(program.until_lines(2));
  program.signal(SIGTERM);
  CHECK(program.wait() == 81);
  CHECK(json::parse(contents(dir / "error.json"))["secondary"] == true);
}

TEST_CASE("the stop file alone stops it, saved") {
  const Scratch dir;
  Program program(dir, nano(dir, {"steps=100000"}),
                  {"RANK=0", "WORLD_SIZE=1", "MUSTER_STOP_FILE=" + (dir / "stop")});
  REQUIRE(program.until_lines(2));
  dir.write("stop", "");
  CHECK(program.wait() == 143);
  CHECK(program.last_line()["saved"] == true);
}

TEST_CASE("refusals are one line and exit 2") {
  const auto refused = [](const Words& arguments, const Words& environment, const char* word) {
    const Scratch dir;
    Program program(dir, arguments, environment);
    CHECK(program.wait() == 2);
    const std::string err = program.err();
    CHECK_THAT(err, Catch::Contains(word));
    CHECK(std::count(err.begin(), err.end(), '\n') == 1);
    CHECK(program.out().empty());
  };
  const Scratch dir;
  refused({}, {}, "--config FILE is missing");
  refused({"--confg", "x"}, {}, "did you mean --config?");
  refused({"--config", "/no/such.json"}, {}, "/no/such.json");
  refused(nano(dir, {"model.n_head=3"}), {}, "n_head");
  refused(nano(dir, {"data.path=/no/such"}), {}, "/no/such");
  refused(nano(dir, {"model.vocab_size=255"}), {}, "vocab_size");
  refused(nano(dir), {"RANK=0", "WORLD_SIZE=2"}, "MUSTER_STORE");
  refused(nano(dir), {"RANK=a", "WORLD_SIZE=2"}, "RANK=a");
  Words metrics = nano(dir);
  metrics.emplace_back("--metrics=/no/such/file");
  refused(metrics, {}, "/no/such/file");
}

TEST_CASE("storage that cannot be used ends with 84, told in the error file") {
  const Scratch dir;
  dir.write("file", "x");
  Program program(dir, nano(dir, {"checkpoint.dir=" + (dir / "file/below")}),
                  {"TORCHELASTIC_ERROR_FILE=" + (dir / "error.json")});
  CHECK(program.wait() == 84);
  const json error = json::parse(contents(dir / "error.json"));
  CHECK(error["message"]["errorCode"] == 84);
  CHECK_FALSE(error.contains("secondary"));
  CHECK_THAT(error["message"]["message"].get<std::string>(), Catch::Contains("file"));
}

TEST_CASE("help and version are asked for, not errors; flags take underscores") {
  const Scratch dir;
  Program help(dir, {"--help"});
  CHECK(help.wait() == 0);
  CHECK_THAT(help.out(), Catch::Contains("train_batch_size") && Catch::Contains("143 stopped"));
  Program version(dir, {"--version"});
  CHECK(version.wait() == 0);
  CHECK_THAT(version.out(), Catch::StartsWith("muster-train "));
}

}  // namespace
}  // namespace muster::runtime
