// SPDX-License-Identifier: Apache-2.0
//
// Files that the agent writes and reads for a run: log folders, scratch, error.json, agent.log.
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "agent/shell/error_file.h"
#include "agent/shell/log_lines.h"
#include "agent/shell/run_directory.h"
#include "agent/shell/scratch.h"
#include "tests/support/temp_dir.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;
using muster::testing::TempDir;

std::string content(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

void put(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

bool is_empty_folder(const std::string& path) {
  return fs::directory_iterator(path) == fs::directory_iterator();
}

}  // namespace

// ---------------------------------------------------------------- run directory

TEST_CASE("the log folder follows XDG, then home, then /tmp") {
  CHECK(default_log_dir({{"XDG_STATE_HOME", "/s"}, {"HOME", "/h"}}, 7) == "/s/muster");
  CHECK(default_log_dir({{"XDG_STATE_HOME", "rel"}, {"HOME", "/h"}}, 7) ==
        "/h/.local/state/muster");
  CHECK(default_log_dir({{"HOME", "/"}}, 7) == "/tmp/muster-7");
  CHECK(default_log_dir({}, 7) == "/tmp/muster-7");
}

TEST_CASE("folders are made when they are needed and not before") {
  const TempDir dir;
  std::vector<std::string> made;
  RunDirectory directory(dir.path(), "job/1",
                         [&](const std::string& path) { made.push_back(path); });
  CHECK_FALSE(directory.make_run().ok());
  directory.set_run("20260131T120000Z-00ff");
  CHECK(is_empty_folder(dir.path()));
  CHECK(directory.made_run_path().empty());

  const auto rank = directory.make_rank(2, 5);
  REQUIRE(rank.ok());
  CHECK(fs::is_directory(*rank));
  CHECK(rank->ends_with("/run-20260131T120000Z-00ff/gen-2/rank-5"));
  CHECK(made == std::vector<std::string>{directory.run_path()});
  REQUIRE(directory.make_rank(2, 5).ok());
  CHECK(made.size() == 1);

  REQUIRE(directory.write_meta(2, {"n\"1", 5, 1, 42}).ok());
  const auto meta = nlohmann::json::parse(content(*rank + "/meta.json"));
  CHECK(meta == nlohmann::json({{"node", "n\"1"}, {"rank", 5}, {"local_rank", 1}, {"pid", 42}}));
}

TEST_CASE("latest points at the newest run") {
  const TempDir dir;
  RunDirectory directory(dir.path(), "j");
  directory.set_run("a");
  REQUIRE(directory.make_run().ok());
  CHECK(fs::read_symlink(dir.path() + "/j/latest") == "run-a");
  directory.set_run("b");
  REQUIRE(directory.make_run().ok());
  CHECK(fs::read_symlink(dir.path() + "/j/latest") == "run-b");
  CHECK(fs::is_directory(dir.path() + "/j/run-a"));
}

TEST_CASE("a job id cannot leave the log folder") {
  const TempDir dir;
  RunDirectory directory(dir.path() + "/logs", "../../escape");
  directory.set_run("../r");
  const auto made = directory.make_run();
  REQUIRE(made.ok());
  CHECK(fs::canonical(*made).string().starts_with(fs::canonical(dir.path() + "/logs").string()));
}

TEST_CASE("the guessable fallback under /tmp is not followed to somebody else's folder") {
  const TempDir dir;
  const std::string base = "/tmp/muster-" + fs::path(dir.path()).filename().string();
  fs::create_directory_symlink(dir.path(), base);
  RunDirectory directory(base, "j");
  directory.set_run("r");
  CHECK_FALSE(directory.make_run().ok());
  CHECK(is_empty_folder(dir.path()));
  fs::remove(base);
  CHECK(directory.make_run().ok());
  CHECK((fs::status(base).permissions() & fs::perms::mask) == fs::perms::owner_all);
  fs::remove_all(base);
}

TEST_CASE("/dev/null and an unwritable base make nothing") {
  RunDirectory off("/dev/null", "j");
  off.set_run("r");
  CHECK(off.off());
  CHECK(off.run_path().empty());
  CHECK_FALSE(off.make_rank(0, 0).ok());
  RunDirectory bad("/proc/nowhere", "j");
  bad.set_run("r");
  CHECK_FALSE(bad.make_rank(0, 0).ok());
  CHECK(bad.made_run_path().empty());
}

// ---------------------------------------------------------------- scratch

TEST_CASE("a worker's folder is private and goes with its worker") {
  const TempDir dir;
  const std::string path = choose_scratch_path({{"XDG_RUNTIME_DIR", dir.path()}}, 0);
  CHECK(path.starts_with(dir.path() + "/muster-"));
  CHECK(is_empty_folder(dir.path()));
  CHECK(choose_scratch_path({{"XDG_RUNTIME_DIR", dir.path()}}, 0) != path);
  {
    Scratch scratch(path);
    const auto worker = scratch.make_worker(0, 1);
    REQUIRE(worker.ok());
    struct stat info {};
    REQUIRE(::stat(worker->folder.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777U) == 0700U);
    REQUIRE(::stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777U) == 0700U);
    CHECK_FALSE(scratch.make_worker(0, 1).ok());
    REQUIRE(scratch.make_worker(1, 1).ok());
    put(worker->folder + "/left", "x");
    scratch.remove_worker(*worker);
    CHECK_FALSE(fs::exists(worker->folder));
  }
  CHECK(is_empty_folder(dir.path()));
}

TEST_CASE("an unusable XDG_RUNTIME_DIR falls back") {
  CHECK(choose_scratch_path({{"XDG_RUNTIME_DIR", "/nowhere"}, {"TMPDIR", "rel"}}, 3)
            .starts_with("/tmp/muster-3-"));
}

TEST_CASE("a scratch folder never takes over something that exists") {
  const TempDir dir;
  const std::string path = dir.path() + "/muster-x";
  fs::create_directory(path);
  put(path + "/theirs", "x");
  {
    Scratch scratch(path);
    CHECK_FALSE(scratch.make_worker(0, 0).ok());
  }
  CHECK(fs::exists(path + "/theirs"));
}

TEST_CASE("removing a scratch folder refuses what it did not make") {
  const TempDir dir;
  fs::create_directory(dir.path() + "/other");
  CHECK_FALSE(remove_scratch(dir.path() + "/other"));
  CHECK(fs::exists(dir.path() + "/other"));
  fs::create_directory_symlink(dir.path() + "/other", dir.path() + "/muster-link");
  CHECK_FALSE(remove_scratch(dir.path() + "/muster-link"));
  CHECK_FALSE(remove_scratch("muster-relative"));
  CHECK(remove_scratch(dir.path() + "/muster-missing"));
  fs::create_directories(dir.path() + "/muster-y/deep/er");
  CHECK(remove_scratch(dir.path() + "/muster-y"));
  CHECK_FALSE(fs::exists(dir.path() + "/muster-y"));
}

TEST_CASE("a job's folder is swept when nobody holds its lock, and not before") {
  const TempDir dir;
  const std::map<std::string, std::string> environment{{"XDG_RUNTIME_DIR", dir.path()}};
  std::string first_path;
  std::string second_path;
  {
    const auto first = JobFolder::make(environment, 7);
    REQUIRE(first.ok());
    first_path = first->path();
    CHECK(first_path.starts_with(dir.path() + "/muster-7-" + boot_tag()));
    put(store_token_path(first_path), "secret");
    const auto second = JobFolder::make(environment, 7);
    REQUIRE(second.ok());
    second_path = second->path();
    CHECK(second_path != first_path);
    CHECK(sweep_job_folders(second_path).folders == 0);
    CHECK(fs::exists(first_path));
  }
  fs::create_directory(dir.path() + "/muster-8-" + boot_tag() + "00000000");
  fs::create_directory(dir.path() + "/muster-7-not-this-boot--");
  CHECK(sweep_job_folders(second_path).folders == 1);
  CHECK_FALSE(fs::exists(first_path));
  CHECK(fs::exists(second_path));
  CHECK(fs::exists(dir.path() + "/muster-8-" + boot_tag() + "00000000"));
  CHECK(fs::exists(dir.path() + "/muster-7-not-this-boot--"));
}

TEST_CASE("a job's folder stays, with a note, as long as its control group cannot be removed") {
  const TempDir dir;
  const std::map<std::string, std::string> environment{{"XDG_RUNTIME_DIR", dir.path()}};
  const auto own = JobFolder::make(environment, 7);
  REQUIRE(own.ok());
  std::string path;
  std::string group;
  {
    const auto first = JobFolder::make(environment, 7);
    REQUIRE(first.ok());
    path = first->path();
    group = dir.path() + "/groups" + path.substr(dir.path().size());
    fs::create_directories(group + "/w0");
    put(group + "/w0/process", "x");  // rmdir refuses it, as one with a process in it
    put(store_token_path(path), "secret");
    remove_job_folder(path, group);
  }
  CHECK(fs::exists(path));
  CHECK_FALSE(fs::exists(store_token_path(path)));
  CHECK(sweep_job_folders(own->path()).folders == 0);
  CHECK(fs::exists(group + "/w0/process"));
  fs::remove(group + "/w0/process");
  CHECK(sweep_job_folders(own->path()).folders == 1);
  CHECK_FALSE(fs::exists(path));
  CHECK_FALSE(fs::exists(group));

  // A note of anything else is not followed.
  {
    const auto first = JobFolder::make(environment, 7);
    REQUIRE(first.ok());
    path = first->path();
    fs::create_directory(dir.path() + "/stranger");
    put(path + "/cgroup", dir.path() + "/stranger");
  }
  CHECK(sweep_job_folders(own->path()).folders == 1);
  CHECK(fs::exists(dir.path() + "/stranger"));
}

// ---------------------------------------------------------------- error.json

TEST_CASE("error.json is read as torchrun writes it") {
  const TempDir dir;
  const std::string path = dir.path() + "/error.json";
  CHECK(read_error_file(path).text.empty());
  CHECK(read_error_file(path).complaint.empty());
  const std::string text =
      R"({"message": {"message": "E: bad", "extraInfo": {"timestamp": "1"}}, "secondary": true})";
  put(path, text);
  const ErrorReport report = read_error_file(path);
  CHECK(report.text == text);
  CHECK(report.secondary);
  CHECK(report.complaint.empty());
  CHECK(error_message(report.text) == "E: bad");
  CHECK(error_message(R"({"message": "plain", "timestamp": 1})") == "plain");
}

TEST_CASE("since when a worker says that it fails") {
  const TempDir dir;
  const std::string path = dir.path() + "/error.json";
  CHECK_FALSE(failing_for("").has_value());
  CHECK_FALSE(failing_for(path).has_value());
  put(path, "");
  CHECK_FALSE(failing_for(path).has_value());
  put(path, "{}");
  REQUIRE(failing_for(path).has_value());
  const auto wrote_ago = [&](Duration ago) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - ago);
    return failing_for(path);
  };
  REQUIRE(wrote_ago(3s).has_value());
  CHECK(*wrote_ago(3s) >= 3s);
  CHECK(wrote_ago(-1h) == Duration{0});    // the clock was set back
  CHECK_FALSE(wrote_ago(1h).has_value());  // it went on after that
}

TEST_CASE("anything else in its place is complained of and does no harm") {
  const TempDir dir;
  const std::string path = dir.path() + "/error.json";
  const auto complaint_of = [&](const std::string& text) {
    put(path, text);
    const ErrorReport report = read_error_file(path);
    CHECK(report.text.empty());
    return report.complaint;
  };
  CHECK(complaint_of("") == "ignored " + path + ": empty");
  CHECK(complaint_of("{\"message\":") == "ignored " + path + ": not JSON");
  CHECK(complaint_of("[1]") == "ignored " + path + ": not a JSON object");
  CHECK(complaint_of(std::string(200'000, '[')) == "ignored " + path + ": larger than 64 KiB");
  CHECK(complaint_of(std::string(60'000, '[')) == "ignored " + path + ": not JSON");
  fs::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(read_error_file(path).complaint == "ignored " + path + ": not a regular file");
  fs::remove(path);
  fs::create_directory(path);
  CHECK(read_error_file(path).complaint == "ignored " + path + ": not a regular file");
  for (const char* odd : {"", "{}", "[]", "7", R"({"message": 3})", R"({"message": {"x": 1}})"}) {
    CHECK(error_message(odd).empty());
  }
  CHECK(error_message(R"({"message": ")" + std::string(1000, 'x') + "\"}").size() < 310);
}

TEST_CASE("a file is written whole or not at all") {
  const TempDir dir;
  const std::string path = dir.path() + "/f";
  put(path, "old");
  REQUIRE(write_whole(path, "new").ok());
  CHECK(content(path) == "new");
  CHECK_FALSE(write_whole(dir.path() + "/no/f", "x").ok());
  CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 1);
}

// ---------------------------------------------------------------- lines

TEST_CASE("lines below the level go to agent.log only, earlier ones too") {
  const TempDir dir;
  std::vector<std::string> shown;
  LogLines log(LogLevel::kWarning, "n1", [&](std::string_view line) { shown.emplace_back(line); });
  log.say(Severity::kInfo, "quiet");
  log.say(Severity::kWarning, "two\nlines\n");
  log.record(Severity::kError, "file only");
  CHECK(shown == std::vector<std::string>{"two", "lines"});
  const std::string path = dir.path() + "/agent.log";
  log.attach(path);
  log.say(Severity::kError, "last\x1b[2J");
  CHECK(shown.back() == "last?[2J");
  std::istringstream lines(content(path));
  std::vector<std::string> ends;
  for (std::string line; std::getline(lines, line);)
    ends.push_back(line.substr(line.find(' ')));
  CHECK(ends == std::vector<std::string>{" n1 info quiet", " n1 warning two", " n1 warning lines",
                                         " n1 error file only", " n1 error last?[2J"});
}

TEST_CASE("a log that cannot be written costs one line") {
  std::vector<std::string> shown;
  LogLines log(LogLevel::kError, "n", [&](std::string_view line) { shown.emplace_back(line); });
  log.attach("/proc/nowhere/agent.log");
  log.attach("/proc/nowhere/agent.log");
  log.say(Severity::kWarning, "below the level");
  CHECK(shown.size() == 1);
  LogLines full(LogLevel::kError, "n", [&](std::string_view line) { shown.emplace_back(line); });
  full.attach("/dev/full");
  full.say(Severity::kInfo, "x");
  full.say(Severity::kInfo, "x");
  CHECK(shown.size() == 2);
}

}  // namespace muster::agent
