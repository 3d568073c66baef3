// SPDX-License-Identifier: Apache-2.0
#include "agent/core/oom.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <catch2/catch.hpp>

#include "agent/shell/oom_counter.h"
#include "tests/support/temp_dir.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;

// A machine's /proc and /sys/fs/cgroup as far as the counter looks.
struct Machine {
  muster::testing::TempDir dir;
  std::string proc = dir.path() + "/proc";
  std::string root = dir.path() + "/cgroup";

  void put(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text;
  }
  void groups(const std::string& text) const { put(proc + "/self/cgroup", text); }
  std::optional<std::uint64_t> read() const { return OomCounter(proc, root).read(); }
};

}  // namespace

TEST_CASE("each kill that was counted is held against one worker") {
  OomLedger ledger;
  CHECK_FALSE(ledger.claim(7));  // nothing has begun
  ledger.begin(3);
  CHECK_FALSE(ledger.claim(3));
  CHECK(ledger.claim(4));
  CHECK_FALSE(ledger.claim(4));
  CHECK(ledger.claim(6));
  CHECK(ledger.claim(6));
  CHECK_FALSE(ledger.claim(6));
  CHECK_FALSE(ledger.claim(std::nullopt));
  ledger.begin(6);
  CHECK_FALSE(ledger.claim(6));
  ledger.begin(std::nullopt);
  CHECK_FALSE(ledger.claim(100));
}

TEST_CASE("a kill that no worker is held against is told to one that fails by itself") {
  OomLedger ledger;
  CHECK(ledger.told_to_failed(7).empty());
  ledger.begin(3);
  CHECK(ledger.told_to_failed(3).empty());
  CHECK(ledger.told_to_failed(std::nullopt).empty());
  CHECK(ledger.told_to_failed(4) ==
        "a process of this control group was killed meanwhile because memory ran out");
  CHECK(ledger.claim(4));  // a worker's own end that was seen later
  CHECK(ledger.told_to_failed(4).empty());
  CHECK(ledger.told_to_failed(6) ==
        "2 processes of this control group were killed meanwhile because memory ran out");
  ledger.begin(6);
  CHECK(ledger.told_to_failed(6).empty());
}

TEST_CASE("the count of a control group, version 2") {
  const Machine machine;
  machine.groups("0::/user.slice/job.scope\n");
  CHECK_FALSE(machine.read());
  const std::string group = machine.root + "/user.slice";
  machine.put(group + "/memory.events",
              "low 0\nhigh 1\nmax 20\noom 5\noom_kill 4\noom_group_kill 1\n");
  CHECK(machine.read() == 4U);  // the group itself has no memory controller: the one above counts
  machine.put(group + "/job.scope/memory.events", "oom 2\noom_kill 2\n");
  CHECK(machine.read() == 2U);
  machine.put(group + "/job.scope/memory.events", "oom 2\n");
  CHECK_FALSE(machine.read());
}

TEST_CASE("the count of a control group, version 1, also below a container's mount") {
  const Machine machine;
  machine.groups("9:name=systemd:/\n4:cpu,memory:/docker/4f\n0::/\n");
  machine.put(machine.root + "/memory.events", "oom_kill 99\n");
  machine.put(machine.root + "/memory/memory.oom_control",
              "oom_kill_disable 0\nunder_oom 0\noom_kill 8\n");
  CHECK(machine.read() == 8U);
  machine.put(machine.root + "/memory/docker/4f/memory.oom_control",
              "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  CHECK(machine.read() == 1U);
}

TEST_CASE("no control groups, or nonsense: no count") {
  const Machine machine;
  CHECK_FALSE(machine.read());
  machine.groups("::\nx\n0:\n0::relative\n3:memory\n");
  CHECK_FALSE(machine.read());
}

}  // namespace muster::agent
