// SPDX-License-Identifier: Apache-2.0
#include "agent/core/kernel_log.h"

#include <catch2/catch.hpp>

namespace muster::agent {
namespace {

DeviceTrouble parsed(const std::string& message, const std::string& micros = "5000000") {
  const auto trouble = parse_kernel_record("4,1201," + micros + ",-;" + message + "\n");
  REQUIRE(trouble);
  return *trouble;
}

std::string described(const std::vector<DeviceTrouble>& troubles, std::int64_t pid = 0,
                      Duration now = 6s) {
  return describe(troubles, pid, Instant{now});
}

}  // namespace

TEST_CASE("an Xid record has its device, number, process and time") {
  const DeviceTrouble lost = parsed(
      "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n"
      " SUBSYSTEM=pci\n DEVICE=+pci:0000:1b:00.0");
  CHECK(lost.kind == DeviceTrouble::Kind::kXid);
  CHECK(lost.at == Instant{5s});
  CHECK(lost.device == "0000:1b:00");
  CHECK(lost.number == 79);
  CHECK(lost.pid == 1234);
  CHECK(described({lost}) == "GPU 0000:1b:00: Xid 79, the GPU has fallen off the bus (pid 1234)");
}

TEST_CASE("Xid records without a process, or with an unknown one") {
  CHECK_FALSE(parsed("NVRM: Xid (PCI:0000:86:00): 48, An uncorrectable double bit error").pid);
  CHECK_FALSE(parsed("NVRM: Xid (PCI:0000:86:00): 79, pid='<unknown>', name=<unknown>, x").pid);
  CHECK(parsed("NVRM: Xid (PCI:0000:86:00): 31, pid=77, name=t, Ch 00000008, intr 10000000. "
               "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f_00000000.")
            .pid == 77);
  const DeviceTrouble old = parsed("NVRM: Xid (0000:86:00): 43, Ch 00000010");
  CHECK(old.device == "0000:86:00");
  CHECK(old.number == 43);
}

TEST_CASE("the common Xid numbers have a meaning, the others their own text") {
  for (const int number : {13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 119}) {
    INFO(number);
    CHECK_FALSE(xid_meaning(number).empty());
  }
  CHECK(described({parsed("NVRM: Xid (PCI:0000:86:00): 999, pid=5, something \x01new")}) ==
        "GPU 0000:86:00: Xid 999, pid=5, something  new (pid 5)");
}

TEST_CASE("NVSwitches and main memory are told as well") {
  CHECK(described({parsed("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 "
                          "LTSSM Fault Up")}) ==
        "NVSwitch 0000:c1:00.0: SXid 20034, Fatal, Link 30 LTSSM Fault Up");
  const DeviceTrouble memory =
      parsed("Memory failure: 0x1a2b3c: Killing python: a:1234 due to hardware memory corruption");
  CHECK(memory.kind == DeviceTrouble::Kind::kMemory);
  CHECK(memory.pid == 1234);
  CHECK(described({memory}) ==
        "uncorrectable error in main memory (0x1a2b3c: Killing python: a:1234 due to hardware "
        "memory corruption)");
}

TEST_CASE("what is about something else, or broken, is nothing") {
  for (const char* record :
       {"", ";", "4,1;NVRM: Xid (PCI:0000:1b:00): 79, x", "4,1,x,-;NVRM: Xid (PCI:0): 79, x",
        "4,1,-5,-;NVRM: Xid (PCI:0): 79, x", "4,1,99999999999999999999,-;NVRM: Xid (PCI:0): 79, x",
        "4,1,9000000000000000000,-;NVRM: Xid (PCI:0): 79, x", "4,1,5,-;usb 1-1: new device",
        "4,1,5,-;NVRM: Xid PCI:0000:1b:00: 79", "4,1,5,-;NVRM: Xid (PCI:0000:1b:00", "4,1,5,-",
        "4,1,5,-;NVRM: Xid (PCI:0000:1b:00): many", "4,1,5,-;NVRM: Xid (PCI:0000:1b:00): -3, x",
        "4,1,5,-;NVRM: Xid (PCI:0000:1b:00): 99999999999, x",
        "4,1,5,-;Memory failure: 0x1: recovery action for dirty page: Recovered",
        "4,1,5,-;Memory failure: 0x1: Killing python due to hardware memory corruption",
        " NVRM: Xid (PCI:0000:1b:00): 79, x"}) {
    INFO(record);
    CHECK_FALSE(parse_kernel_record(record));
  }
}

TEST_CASE("of many, a worker's own come first, each once, none that is old, and not too many") {
  const DeviceTrouble early = parsed("NVRM: Xid (PCI:0000:01:00): 63, pid=1, x", "1000000");
  const DeviceTrouble other = parsed("NVRM: Xid (PCI:0000:02:00): 45, pid=8, x", "400000000");
  const DeviceTrouble own = parsed("NVRM: Xid (PCI:0000:03:00): 31, pid=9, x", "400000000");
  const std::string text = described({early, other, other, own, own}, 9, 401s);
  CHECK(text ==
        "GPU 0000:03:00: Xid 31, GPU memory page fault, usually an invalid address in the program "
        "(pid 9); GPU 0000:02:00: Xid 45, the program's work was removed from the GPU, usually "
        "after an earlier error (pid 8)");
  std::vector<DeviceTrouble> many;
  for (int i = 0; i < 5; ++i) {
    many.push_back(other);
    many.back().number = 100 + i;
  }
  CHECK(described(many, 9, 401s).ends_with("; 2 more in the kernel log"));
  CHECK(described({early}, 9, 401s).empty());
  CHECK(described({}).empty());
}

TEST_CASE("whom the kernel killed because memory ran out") {
  const auto victim = [](const std::string& message) {
    return parse_oom_victim("6,1201,5000,-;" + message + "\n");
  };
  CHECK(victim("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
               "oom_memcg=/a,task_memcg=/a/b,task=python3,pid=32472,uid=0") == 32472);
  CHECK(victim("oom-kill:constraint=CONSTRAINT_NONE,task=x,pid=1,uid=2,pid=77,uid=0") == 77);
  CHECK(victim("Memory cgroup out of memory: Killed process 32472 (python3) total-vm:1kB") ==
        32472);
  CHECK(victim("Out of memory: Killed process 5 (a: Killed process 6 ) total-vm:1kB") == 5);
  CHECK(victim("Out of memory (oom_kill_allocating_task): Killed process 9 (x)") == 9);
  for (const char* other : {"python3 invoked oom-killer: gfp_mask=0xcc0, pid=5", "oom-kill:task=x",
                            "Out of memory: Killed process python3", "Killed process 9 (x)", ""}) {
    INFO(other);
    CHECK_FALSE(victim(other));
  }
  CHECK_FALSE(parse_oom_victim("oom-kill:constraint=x,task=x,pid=5,uid=0"));  // no record
}

}  // namespace muster::agent
