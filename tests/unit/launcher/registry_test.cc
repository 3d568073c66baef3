// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/registry.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "launcher/commands/addresses.h"
#include "launcher/commands/node_facts.h"
#include "launcher/commands/open_files.h"
#include "launcher/commands/small_flags.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "muster-registry-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string live() const { return path + "/state/.live"; }
  std::string path;
};

LiveJob ours(const std::string& job) {
  return {.job = job,
          .pid = getpid(),
          .start_ticks = start_ticks(getpid()),
          .socket = "/tmp/s",
          .rendezvous = "",
          .node = "n"};
}

std::size_t files_in(const std::string& directory) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("a live job is listed until its entry goes") {
  const Folder folder;
  CHECK(live_jobs(folder.live()).empty());
  {
    LiveEntry entry;
    LiveJob job = ours("a \"b\"");
    REQUIRE(entry.publish(folder.live(), job).ok());
    CHECK(live_jobs(folder.live()) == std::vector<LiveJob>{job});
    job.socket = "/tmp/other";
    REQUIRE(entry.publish(folder.live(), job).ok());
    CHECK(live_jobs(folder.live()) == std::vector<LiveJob>{job});
    struct stat info {};
    REQUIRE(stat(folder.live().c_str(), &info) == 0);
    CHECK((info.st_mode & 0777U) == 0700U);
    for (const auto& file : fs::directory_iterator(folder.live())) {
      REQUIRE(stat(file.path().c_str(), &info) == 0);
      CHECK((info.st_mode & 0777U) == 0600U);
    }
  }
  CHECK(files_in(folder.live()) == 0);
}

TEST_CASE("files of the dead are removed, nonsense is skipped") {
  const Folder folder;
  const pid_t child = fork();
  if (child == 0) {
    // Dies without a farewell.
    auto* entry = new LiveEntry;
    const bool ok = entry->publish(folder.live(), ours("gone")).ok();
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  REQUIRE(files_in(folder.live()) == 1);
  for (const char* text : {"", "{", "[]", "{\"pid\":-1}", "{\"pid\":1,\"start_ticks\":\"x\"}"}) {
    std::ofstream(cat(folder.live(), "/odd.json")) << text;
    CHECK(live_jobs(folder.live()).empty());
    CHECK(files_in(folder.live()) == 1);
  }
}

TEST_CASE("the lock counts, not the pid: that may be of another namespace") {
  const Folder folder;
  LiveEntry entry;
  LiveJob job = ours("elsewhere");
  job.start_ticks += 1;
  REQUIRE(entry.publish(folder.live(), job).ok());
  CHECK(live_jobs(folder.live()) == std::vector<LiveJob>{job});
  sweep_registry(folder.live());
  CHECK(files_in(folder.live()) == 1);
}

TEST_CASE("an entry of an earlier boot goes, one of another host is left alone") {
  const Folder folder;
  LiveEntry entry;
  REQUIRE(entry.publish(folder.live(), ours("now")).ok());
  const auto put = [&](const std::string& name, const std::string& host) {
    std::ofstream(cat(folder.live(), "/", name))
        << R"({"job":"j","pid":1,"start_ticks":1,"node":"n","socket":"","rendezvous":"h:1",)"
        << R"("boot":"no-such-boot","host":")" << host << "\"}\n";
  };
  put("1-1.json", host_name());
  put("2-2.json", "another.host");
  std::ofstream(folder.live() + "/3-3.json.new") << "{";
  CHECK(live_jobs(folder.live()).size() == 1);
  sweep_registry(folder.live());
  CHECK_FALSE(fs::exists(folder.live() + "/1-1.json"));
  CHECK(fs::exists(folder.live() + "/2-2.json"));
  CHECK_FALSE(fs::exists(folder.live() + "/3-3.json.new"));
}

TEST_CASE("of two processes of one job the hosting one is shown") {
  const Folder folder;
  LiveJob joined = ours("j");
  joined.socket = "";
  joined.rendezvous = "h:1";
  LiveJob hosting = joined;
  hosting.socket = "/tmp/s";
  hosting.pid = getppid();
  hosting.start_ticks = start_ticks(getppid());
  LiveEntry one;
  LiveEntry two;
  REQUIRE(one.publish(folder.live(), joined).ok());
  REQUIRE(two.publish(folder.live(), hosting).ok());
  CHECK(live_jobs(folder.live()) == std::vector<LiveJob>{hosting});
  LiveEntry three;
  LiveJob elsewhere = ours("j");
  REQUIRE(three.publish(folder.live(), elsewhere).ok());  // takes the place of `joined`'s file
  CHECK(live_jobs(folder.live()).size() == 2);
}

TEST_CASE("a directory that cannot be is an error, no more") {
  LiveEntry entry;
  CHECK_FALSE(entry.publish("/proc/no/.live", ours("x")).ok());
}

TEST_CASE("process start times") {
  CHECK(start_ticks(getpid()) != 0);
  CHECK(start_ticks(getpid()) == start_ticks(getpid()));
  CHECK(start_ticks(0x7fffffff) == 0);
  CHECK(random_hex(16).size() == 16);
  CHECK(random_hex(16) != random_hex(16));
}

TEST_CASE("the limit of open files, against the workers") {
  const std::uint64_t needed = open_files_needed(4);
  CHECK(open_files_needed(5) > needed);
  CHECK(check_open_files(4, 0, {.rlim_cur = 1, .rlim_max = needed}).ok());
  const absl::Status little = check_open_files(4, 0, {.rlim_cur = 8, .rlim_max = needed - 1});
  CHECK(little.message() == cat("4 workers need ", needed, " open files, the limit here is ",
                                needed - 1, " (ulimit -Hn)"));
  CHECK(check_open_files(4, 9, {.rlim_cur = 8, .rlim_max = needed + 9}).ok());
  const absl::Status taken = check_open_files(4, 9, {.rlim_cur = 8, .rlim_max = needed + 8});
  CHECK(taken.message() == cat("4 workers need ", needed,
                               " open files beside those it was started with, up to number 11, "
                               "the limit here is ",
                               needed + 8, " (ulimit -Hn)"));
}

TEST_CASE("inherited open files are counted by their numbers") {
  const std::uint64_t before = open_files_inherited();
  const int high = static_cast<int>(before) + 40;
  REQUIRE(::dup2(0, high) == high);
  CHECK(open_files_inherited() == static_cast<std::uint64_t>(high) + 1 - 3);
  ::close(high);
  CHECK(open_files_inherited() == before);
}

TEST_CASE("which addresses are ours, and where to listen for a name") {
  const std::vector<std::string> own{"10.0.0.7", "fd00::7"};
  CHECK(is_own_address("127.9.9.9", own));
  CHECK(is_own_address("::1", own));
  CHECK(is_own_address("::ffff:10.0.0.7", own));
  CHECK(is_own_address("fd00:0::7", own));
  CHECK_FALSE(is_own_address("10.0.0.8", own));
  CHECK_FALSE(is_own_address("127.evil", own));
  CHECK(owns_endpoint({"10.0.0.8", "10.0.0.7"}, own, ""));
  CHECK_FALSE(owns_endpoint({"10.0.0.8"}, own, "10.0.0.7"));
  CHECK(owns_endpoint({"127.0.0.2"}, own, ""));
  CHECK(owns_endpoint({"127.0.0.2"}, own, "127.0.0.2"));
  CHECK_FALSE(owns_endpoint({"127.0.0.2"}, own, "127.0.0.3"));
  CHECK(owns_endpoint({"127.0.0.2"}, own, "10.0.0.7"));
  CHECK(owns_endpoint({"10.0.0.7"}, own, "127.0.0.3"));
  CHECK(listen_host("127.0.0.2", {"127.0.0.2"}, own) == "127.0.0.2");
  CHECK(listen_host("10.0.0.7", {"10.0.0.7"}, own) == "10.0.0.7");
  CHECK(listen_host("node7", {"10.0.0.9", "10.0.0.7"}, own) == "10.0.0.7");
  CHECK(listen_host("node7", {"127.0.1.1"}, own).empty());   // Debian's own name
  CHECK(listen_host("virtual", {"10.9.9.9"}, own).empty());  // rank 0 offers itself
  CHECK(listen_host("unknown", {}, own).empty());
  CHECK(listen_host("localhost", {"127.0.0.1", "::1"}, own) == "127.0.0.1");
  CHECK_FALSE(own_addresses().empty());
}

TEST_CASE("flags of the small commands") {
  const std::vector<SmallFlag> known{{"state-dir", true}, {"json", false}};
  const auto error = [&](const std::vector<std::string>& words) {
    const auto line = parse_small("x", words, known);
    return line.ok() ? std::string("none") : cat(line.status().message());
  };
  const auto line = parse_small("x", {"--state_dir=a=b", "word", "--json", "-"}, known);
  REQUIRE(line.ok());
  CHECK(line->get("state-dir") == "a=b");
  CHECK(line->has("json"));
  CHECK(line->rest == std::vector<std::string>{"word", "-"});
  CHECK(error({"--jsn"}) == "unknown flag --jsn; did you mean --json?");
  CHECK(error({"--json=1"}) == "--json takes no value");
  CHECK(error({"--state-dir"}) == "--state-dir needs a value");
  CHECK(error({"--state-dir", "--json"}) == "--state-dir needs a value");
  CHECK(error({"--state-dir="}) == "--state-dir needs a value");
  CHECK(error({"-h"}) == "none");
}

}  // namespace muster::launcher
