// SPDX-License-Identifier: Apache-2.0
//
// GPU memory between generations, with a libnvidia-ml.so.1 that reads its devices from a file.
#include "agent/shell/device_watch.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include <boost/asio/executor_work_guard.hpp>
#include <catch2/catch.hpp>

#include "agent/shell/io_loop.h"
#include "agent/shell/nvml.h"
#include "tests/support/temp_dir.h"

namespace muster::agent {
namespace {

struct Answer {
  std::string holder;
  std::string trouble;
};

class Devices {
 public:
  Devices() {
    places.root = dir.path();
    places.nvml = MUSTER_FAKE_NVML;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread is there yet
    ::setenv("FAKE_NVML_STATE", path().c_str(), 1);
  }
  ~Devices() { ::unsetenv("FAKE_NVML_STATE"); }  // NOLINT(concurrency-mt-unsafe)
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  std::string path() const { return dir.path() + "/state"; }
  void are(const std::string& text) const {
    std::ofstream(path() + ".new") << text;
    std::filesystem::rename(path() + ".new", path());
  }
  std::string calls() const {
    std::ifstream file(path() + ".calls");
    std::string text;
    std::getline(file, text);
    return text;
  }
  void ask(DeviceWatch& watch, Duration patience) {
    watch.await({41, 42}, patience, [this](const std::string& holder, const std::string& trouble) {
      answer = Answer{holder, trouble};
    });
    CHECK_FALSE(answer);
  }
  template <typename Condition>
  void until(Condition condition) {
    const Instant end = IoLoop::now() + 30s;
    while (!condition()) {
      REQUIRE(IoLoop::now() < end);
      io.restart();
      io.run_one_for(std::chrono::milliseconds(5));
    }
  }
  Answer wait(DeviceWatch& watch, Duration patience) {
    ask(watch, patience);
    until([this] { return answer.has_value(); });
    return *answer;
  }

  muster::testing::TempDir dir;
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> awake{io.get_executor()};
  DevicePlaces places;
  std::optional<Answer> answer;
};

}  // namespace

TEST_CASE("free devices are free, and the library is let go") {
  Devices devices;
  devices.are("GPU-a 80000 10 7\nGPU-b 80000 0\n");
  {
    DeviceWatch watch(devices.io, devices.places);
    const Answer answer = devices.wait(watch, 20s);
    CHECK(answer.holder.empty());
    CHECK(answer.trouble.empty());
  }
  CHECK(devices.calls() == "imms");
}

TEST_CASE("a process that still has its memory is waited for") {
  Devices devices;
  devices.are("GPU-a 80000 70000 41\n");
  {
    DeviceWatch watch(devices.io, devices.places);
    devices.ask(watch, 20s);
    devices.until([&] { return devices.calls().size() > 3; });
    CHECK_FALSE(devices.answer);
    devices.are("GPU-a 80000 10\n");
    devices.until([&] { return devices.answer.has_value(); });
    CHECK(devices.answer->holder.empty());
  }
  CHECK(devices.calls().ends_with("ms"));
}

TEST_CASE("it is named when the patience is over, even among many") {
  Devices devices;
  std::string others;
  for (int pid = 1000; pid < 1100; ++pid)
    others += " " + std::to_string(pid);
  devices.are("GPU-a 81920 71680" + others + " 42\n");
  DeviceWatch watch(devices.io, devices.places);
  CHECK(devices.wait(watch, 60ms).holder ==
        "pid 42, which ended, still holds memory of GPU 0 (70.0 GiB in use)");
}

TEST_CASE("only devices that workers see count") {
  Devices devices;
  devices.are("GPU-a 80000 70000 41\nGPU-b 80000 10\n");
  const std::string mask = GENERATE(as<std::string>{}, "1", "GPU-b", "GPU-b,GPU-none");
  INFO(mask);
  devices.places.mask = mask;
  DeviceWatch watch(devices.io, devices.places);
  CHECK(devices.wait(watch, 20s).holder.empty());
}

TEST_CASE("without the library, or with one that does not start, nobody looks") {
  Devices devices;
  SECTION("not there") {
    devices.places.nvml = devices.dir.path() + "/libnvidia-ml.so.1";
    DeviceWatch watch(devices.io, devices.places);
    CHECK(devices.wait(watch, 20s).trouble.find("libnvidia-ml.so.1") != std::string::npos);
    CHECK(devices.calls().empty());
  }
  SECTION("another library") {
    const absl::StatusOr<NvmlApi> api = load_nvml("libc.so.6");
    CHECK(std::string(api.status().message()).find("libc.so.6 has no nvmlInit_v2, nvmlShut") == 0);
  }
  SECTION("no driver behind it") {
    DeviceWatch watch(devices.io, devices.places);
    const Answer answer = devices.wait(watch, 20s);
    CHECK(answer.trouble == "nvmlInit: error 9");
    CHECK(answer.holder.empty());
  }
}

TEST_CASE("who does not wait any more is not called, and its thread ends") {
  Devices devices;
  devices.are("GPU-a 80000 70000 41\n");
  {
    DeviceWatch watch(devices.io, devices.places);
    devices.ask(watch, 20s);
    devices.until([&] { return devices.calls().find('m') != std::string::npos; });
  }
  CHECK(devices.calls().ends_with("s"));
  devices.awake.reset();
  devices.io.restart();
  devices.io.run();
  CHECK_FALSE(devices.answer);
}

TEST_CASE("a later question takes the place of an earlier one") {
  Devices devices;
  devices.are("GPU-a 80000 70000 41\n");
  DeviceWatch watch(devices.io, devices.places);
  bool first = false;
  watch.await({41}, 20s, [&](const std::string&, const std::string&) { first = true; });
  devices.until([&] { return devices.calls().find('m') != std::string::npos; });
  devices.are("GPU-a 80000 10\n");
  CHECK(devices.wait(watch, 20s).holder.empty());
  CHECK_FALSE(first);
}

TEST_CASE("a driver is there where its control device is") {
  Devices devices;
  CHECK_FALSE(devices.places.has_driver());
  std::ofstream(devices.dir.path() + "/nvidiactl");
  CHECK(devices.places.has_driver());
}

}  // namespace muster::agent
