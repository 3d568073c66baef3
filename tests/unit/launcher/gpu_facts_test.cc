// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/gpu_facts.h"

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"

namespace muster::launcher {
namespace {

// A machine's /proc/driver/nvidia.
struct Machine {
  muster::testing::TempDir dir;
  NodeProbe probe{.proc = dir.path(), .cgroup = "", .devices = dir.path() + "/dev", .affinity = 1};

  void put(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = dir.path() + "/driver/nvidia/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void gpu(const std::string& bus, const std::string& model) const {
    put("gpus/" + bus + "/information",
        "Model: \t\t " + model + "\nIRQ:   \t\t 16\nGPU UUID: \t GPU-8f\nDevice Minor: \t 0\n");
  }
};

}  // namespace

TEST_CASE("GPUs are named by their driver's files") {
  const Machine machine;
  CHECK(gpu_line(machine.probe).empty());
  machine.put("version",
              "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  "
              "(dvs@U22)\nGCC version:  gcc version 12.2.0 (Debian)\n");
  CHECK(gpu_line(machine.probe) == "driver 580.65.06");
  machine.gpu("0000:1b:00.0", "NVIDIA H200");
  machine.gpu("0000:0a:00.0", "NVIDIA H200");
  CHECK(gpu_line(machine.probe) == "NVIDIA H200, driver 580.65.06");
  machine.gpu("0000:05:00.0", "Tesla T4");
  CHECK(gpu_line(machine.probe) == "Tesla T4 and NVIDIA H200, driver 580.65.06");
}

TEST_CASE("whatever the driver's files hold, the line is one line") {
  const Machine machine;
  machine.put("version", "NVRM version:\n");
  machine.gpu("0000:05:00.0", "A\x01\x1b[31m");
  CHECK(gpu_line(machine.probe) == "A??[31m");
  machine.put("gpus/0000:05:00.0/information", "no model here\n");
  CHECK(gpu_line(machine.probe).empty());
}

TEST_CASE("devices that the driver lists but that have no file are told apart from none") {
  const Machine machine;
  std::string reason;
  CHECK(count_gpus({}, machine.probe, reason) == 0);
  CHECK(reason.find("nvidia-smi") == std::string::npos);
  machine.gpu("0000:1b:00.0", "NVIDIA H200");
  CHECK(count_gpus({}, machine.probe, reason) == 0);
  CHECK(reason.find("its driver has GPUs: `nvidia-smi` makes their files") != std::string::npos);
}

}  // namespace muster::launcher
