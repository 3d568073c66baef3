// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/kernel_log_reader.h"

#include <fstream>
#include <string>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"

namespace muster::agent {

TEST_CASE("the kernel's log is read from where it stood when the generation began") {
  const muster::testing::TempDir dir;
  const std::string path = dir.path() + "/kmsg";
  KernelLogReader reader;
  reader.begin(path);  // not there
  CHECK(reader.read().empty());
  const auto log = [&](const std::string& text) { std::ofstream(path, std::ios::app) << text; };
  log("4,1,1000,-;NVRM: Xid (PCI:0000:1b:00): 63, pid=1, old\n");
  reader.begin(path);
  CHECK(reader.read().empty());
  log("6,2,2000,-;usb 1-1: new\n DEVICE=+usb:1-1\n");
  log("4,3,3000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1, x\n SUBSYSTEM=pci\n");
  REQUIRE(reader.read().size() == 1);
  CHECK(reader.read().front().number == 79);
  for (int i = 100; i < 200; ++i)
    log("4,3,3000,-;NVRM: Xid (PCI:0000:1b:00): " + std::to_string(i) + ", pid=1, x\n");
  CHECK(reader.read().size() == 64);  // the last ones
  CHECK(reader.read().back().number == 199);
  log("6,9,9000,-;Out of memory: Killed process 41 (x) total-vm:1kB\n");
  CHECK(reader.killed_for_memory(41));
  CHECK_FALSE(reader.killed_for_memory(42));
  reader.begin(path);
  CHECK(reader.read().empty());
  CHECK_FALSE(reader.killed_for_memory(41));
}

}  // namespace muster::agent
