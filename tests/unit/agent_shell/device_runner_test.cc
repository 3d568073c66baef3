// SPDX-License-Identifier: Apache-2.0
//
// A node with GPUs, whole: real workers, a device that still has the memory of the last ones, and
// a kernel log that says why a worker ended.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/unit/agent_shell/runner_fixture.h"

namespace muster::agent {
namespace {

using muster::testing::content_of;
using muster::testing::OneNode;

class GpuNode : public OneNode {
 public:
  explicit GpuNode(const std::string& script) : OneNode(1, script) {
    std::filesystem::create_directory(path("dev"));
    std::ofstream(path("dev/nvidiactl"));
    std::ofstream(path("dev/kmsg"));
    options.devices.root = path("dev");
    options.devices.nvml = MUSTER_FAKE_NVML;
    config.device_patience = 20s;
    config.spec.policy.max_restarts = 1;
    device("GPU-a 80000 10\n");
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no thread looks yet
    ::setenv("FAKE_NVML_STATE", path("state").c_str(), 1);
  }
  ~GpuNode() {
    runner.reset();                 // with its thread
    ::unsetenv("FAKE_NVML_STATE");  // NOLINT(concurrency-mt-unsafe)
  }
  GpuNode(const GpuNode&) = delete;
  GpuNode& operator=(const GpuNode&) = delete;

  void device(const std::string& text) const {
    std::ofstream(path("state.new")) << text;
    std::filesystem::rename(path("state.new"), path("state"));
  }
  std::ptrdiff_t looks() const {
    const std::string calls = content_of(path("state.calls"));
    return std::count(calls.begin(), calls.end(), 'm');
  }
};

// The first worker leaves its memory behind.
const char* const kHolds =
    "if [ $MUSTER_GENERATION = 0 ]; then"
    "  echo \"GPU-a 80000 70000 $$\" > \"$OUT/held\"; mv \"$OUT/held\" \"$OUT/state\"; exit 3; fi";

}  // namespace

TEST_CASE("the next workers start when the memory of the last ones is free") {
  GpuNode job(kHolds);
  job.start();
  // The generation is committed, and the device was looked at after that again and again.
  job.until([&] { return job.events("\"generation_formed\"").size() == 2 && job.looks() > 5; });
  CHECK(job.events("\"worker_started\"").size() == 1);
  job.device("GPU-a 80000 10\n");
  CHECK(job.finish().exit_code == 0);
  CHECK(job.events("\"worker_started\"").size() == 2);
  job.until([&] { return content_of(job.path("state.calls")).ends_with("s"); });
}

TEST_CASE("memory that does not come back holds the restart up for the patience, and is named") {
  GpuNode job(kHolds);
  job.config.device_patience = 200ms;
  CHECK(job.run().exit_code == 0);
  CHECK(job.events("\"worker_started\"").size() == 2);
  CHECK(job.err().find("not waiting any longer for free GPU memory: pid ") != std::string::npos);
  CHECK(job.err().find("which ended, still holds memory of GPU 0 (68.4 GiB") != std::string::npos);
}

TEST_CASE("a stop while the memory is waited for ends the job at once") {
  GpuNode job(kHolds);
  job.start();
  job.until([&] { return job.looks() > 2; });
  job.runner->signal(15);
  CHECK(job.finish().exit_code == 128 + 15);
  CHECK(job.events("\"worker_started\"").size() == 1);
}

TEST_CASE("a job that ends asks no device") {
  GpuNode job("exit $((3 * (1 - MUSTER_GENERATION)))");
  job.config.spec.policy.max_restarts = 0;
  CHECK(job.run().exit_code == 3);
  CHECK(job.looks() == 0);
}

TEST_CASE("what the kernel said of devices stands with the failure") {
  GpuNode job(
      "read up rest < /proc/uptime;"
      "echo \"4,9,${up%.*}000000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=$$, name=sh, GPU has"
      " fallen off the bus.\" >> \"$OUT/dev/kmsg\"; exit 9");
  std::ofstream(job.path("dev/kmsg")) << "4,1,5,-;NVRM: Xid (PCI:0000:1b:00): 63, pid=7, old\n";
  job.config.spec.policy.max_restarts = 0;
  CHECK(job.run().exit_code == 9);
  CHECK(job.err().find("  kernel: GPU 0000:1b:00: Xid 79, the GPU has fallen off the bus (pid ") !=
        std::string::npos);
  CHECK(job.err().find("Xid 63") == std::string::npos);
  const auto failed = job.events("\"generation_failed\"");
  REQUIRE(failed.size() == 1);
  const auto cause = nlohmann::json::parse(failed[0])["first_cause"];
  CHECK(cause["kind"] == "exit");
  CHECK(cause["detail"].get<std::string>().starts_with("GPU 0000:1b:00: Xid 79, "));
}

}  // namespace muster::agent
