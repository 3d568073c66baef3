// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/engine/device_choice.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace muster::runtime::cuda {
namespace {

DeviceReport report(int rank) {
  DeviceReport one;
  one.libraries = "CUDA 13.0";
  one.facts = {.host = "gpu-" + std::to_string(rank) + "/boot",
               .device = "NVIDIA H200",
               .uuid = "GPU-" + std::to_string(rank),
               .pci_bus = "0000:1b:00.0",
               .capability = 90,
               .driver = 580,
               .driver_cuda = 13000,
               .libraries_cuda = 13000,
               .nccl = 22809};
  return one;
}
DeviceReport without(int rank, const std::string& why) {
  DeviceReport one = report(rank);
  one.why_not = why;
  return one;
}
DeviceWish wish(DeviceChoice device, const std::string& backend = "auto") {
  DeviceWish made;
  made.device = device;
  made.backend = backend;
  return made;
}
std::string refusal(const DeviceWish& made, const std::vector<DeviceReport>& reports) {
  const auto decision = decide_device(made, reports);
  CHECK(absl::IsInternal(decision.status()));
  return std::string(decision.status().message());
}
bool notes(const DeviceDecision& decision, const std::string& word) {
  for (const std::string& note : decision.notes)
    if (note.find(word) != std::string::npos) return true;
  return false;
}

}  // namespace

TEST_CASE("a model that no device computes is left to the CPU, or refused by name") {
  TrainConfig config;
  config.model.n_embd = 512;
  config.model.n_head = 2;
  CHECK(wish_of(config).why_not.empty());
  config.model.n_head = 1;
  const DeviceWish made = wish_of(config);
  const auto decision = decide_device(made, {report(0)});
  REQUIRE(decision.ok());
  CHECK_FALSE(decision->on_device);
  CHECK(notes(*decision, "device auto: the CPU, since heads have 512 elements"));
  config.device = DeviceChoice::kCuda;
  CHECK(refusal(wish_of(config), {report(0)}) ==
        "device cuda: heads have 512 elements (model.n_embd / n_head), and at most 256 can be "
        "computed on a device");
}

TEST_CASE("auto takes a device where all have one, else the CPU, and says why") {
  const auto device = decide_device(wish(DeviceChoice::kAuto), {report(0), report(1)});
  REQUIRE(device.ok());
  CHECK(device->on_device);
  CHECK(device->backend == DeviceBackend::kNccl);
  CHECK(notes(*device, "device auto: NVIDIA H200, CUDA 13.0"));
  const auto cpu =
      decide_device(wish(DeviceChoice::kAuto), {without(0, "no driver"), without(1, "no driver")});
  REQUIRE(cpu.ok());
  CHECK_FALSE(cpu->on_device);
  CHECK(cpu->notes == std::vector<std::string>{"device auto: the CPU, since no driver"});
  CHECK(decide_device(wish(DeviceChoice::kAuto), {report(0)})->backend == DeviceBackend::kAlone);
}

TEST_CASE("what cannot be had is refused with the rank and the reason") {
  CHECK(refusal(wish(DeviceChoice::kCuda), {without(0, "no driver")}) == "device cuda: no driver");
  CHECK_THAT(refusal(wish(DeviceChoice::kAuto, "nccl"), {without(0, "no driver")}),
             Catch::Contains("parallel.backend nccl needs a CUDA device: no driver"));
  DeviceWish flag = wish(DeviceChoice::kAuto, "nccl");
  flag.backend_name = "--backend";
  CHECK_THAT(refusal(flag, {report(0), report(0)}), Catch::StartsWith("--backend nccl: "));
  for (const DeviceChoice device : {DeviceChoice::kAuto, DeviceChoice::kCuda}) {
    CHECK_THAT(refusal(wish(device), {report(0), without(1, "no driver")}),
               Catch::Contains("rank 1 (gpu-1) has no device to use (no driver), rank 0 (gpu-0) "
                               "has NVIDIA H200"));
  }
}

TEST_CASE("without NCCL for all gradients go through host memory, and a line says why") {
  std::vector<DeviceReport> reports{report(0), report(1)};
  reports[1].why_not_nccl = "no libnccl.so.2 here";
  const auto staged = decide_device(wish(DeviceChoice::kAuto), reports);
  REQUIRE(staged.ok());
  CHECK(staged->backend == DeviceBackend::kStaged);
  CHECK(notes(*staged, "rank 1 (gpu-1): no libnccl.so.2 here"));
  CHECK_THAT(refusal(wish(DeviceChoice::kCuda, "nccl"), reports),
             Catch::Contains("no libnccl.so.2 here"));

  reports = {report(0), report(1)};
  reports[1].facts.nccl = 22703;
  CHECK(notes(*decide_device(wish(DeviceChoice::kAuto), reports), "has NCCL 2.27.3"));
  reports = {report(0), report(0)};
  CHECK(notes(*decide_device(wish(DeviceChoice::kAuto), reports), "ranks 0 and 1 are on one GPU"));

  const auto asked = decide_device(wish(DeviceChoice::kCuda, "staged"), {report(0), report(1)});
  REQUIRE(asked.ok());
  CHECK(asked->backend == DeviceBackend::kStaged);
  CHECK(asked->notes.size() == 1);
}

TEST_CASE("NCCL's settings are shown once, and those of hosts that have others beside them") {
  const NcclSetting debug{"NCCL_DEBUG", "WARN", "environment"};
  const NcclSetting blocking{"NCCL_COMM_BLOCKING", "1", "/etc/nccl.conf"};
  std::vector<DeviceReport> reports{report(0), report(1), report(2), report(3), report(4)};
  for (DeviceReport& one : reports)
    one.settings = {debug};
  const auto alike = decide_device(wish(DeviceChoice::kAuto), reports);
  REQUIRE(alike.ok());
  CHECK(std::vector<std::string>(alike->notes.begin() + 1, alike->notes.end()) ==
        std::vector<std::string>{"NCCL settings: NCCL_DEBUG=WARN"});

  reports[2].settings = {blocking, debug};
  reports[3].settings.clear();
  reports[4].settings = reports[2].settings;
  const auto mixed = decide_device(wish(DeviceChoice::kAuto), reports);
  REQUIRE(mixed->notes.size() == 5);
  CHECK(mixed->notes[2] ==
        "rank 2 (gpu-2) and 1 more: NCCL settings: NCCL_COMM_BLOCKING=1 (/etc/nccl.conf) "
        "NCCL_DEBUG=WARN");
  CHECK_THAT(mixed->notes[3],
             Catch::StartsWith("rank 2 (gpu-2) and 1 more: NCCL_COMM_BLOCKING=1 in /etc"));
  CHECK(mixed->notes[4] == "rank 3 (gpu-3): no NCCL settings");

  reports.clear();
  for (int rank = 0; rank < 40; ++rank) {
    reports.push_back(report(rank));
    reports.back().settings = {{"NCCL_SOCKET_IFNAME", "eth" + std::to_string(rank), "file"}};
  }
  CHECK(decide_device(wish(DeviceChoice::kAuto), reports)->notes.size() == 1 + 1 + 8);
}

TEST_CASE("where the order must not depend on the ranks the host adds") {
  TrainConfig config;
  config.parallel.deterministic = true;
  const auto decision = decide_device(wish_of(config), {report(0), report(1)});
  REQUIRE(decision.ok());
  CHECK(decision->on_device);
  CHECK(decision->backend == DeviceBackend::kAlone);
  CHECK(notes(*decision, "on the host"));
}

TEST_CASE("a report is one line and comes back") {
  DeviceReport one = without(3, "a \"quoted\"\treason\nin two lines");
  one.why_not_nccl = "none";
  one.settings = {{"NCCL_DEBUG", "a=\"b\"", "/etc/nccl.conf"}};
  const std::string line = report_line(one);
  CHECK(line.find('\n') == std::string::npos);
  REQUIRE(read_report_line(line).ok());
  CHECK(*read_report_line(line) == one);
  for (const char* odd : {"", "{", "[]", "{\"why_not\":1}", "{\"why_not\":\"\"}"})
    CHECK(absl::IsFailedPrecondition(read_report_line(odd).status()));
}

}  // namespace muster::runtime::cuda
