// SPDX-License-Identifier: Apache-2.0
//
// Devices, streams and memory over the fake driver: what is queued runs in the order that streams
// and events promise and no other, errors carry names, and everything is given back.
#include "worker_runtime/cuda/device.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/fake_cuda/driver.h"
#include "worker_runtime/cuda/kernels/names.h"

namespace muster::runtime::cuda {
namespace {

using Pace = FakeDriver::Pace;

std::shared_ptr<Device> open(const FakeDriver& driver, int ordinal = 0) {
  auto device = Device::open(driver.api(), ordinal, FakeDriver::images());
  INFO(device.status().ToString());
  REQUIRE(device.ok());
  return *device;
}

template <class T>
T need(absl::StatusOr<T> made) {
  INFO(made.status().ToString());
  REQUIRE(made.ok());
  return std::move(*made);
}

std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

}  // namespace

TEST_CASE("a device says what it is") {
  const FakeDriver driver;
  const DeviceFacts facts = open(driver)->facts();
  CHECK(facts.name == "Fake GPU");
  CHECK(facts.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e00");
  CHECK(facts.pci_bus == "0000:01:00.0");
  CHECK(facts.capability_major == 9);
  CHECK(facts.driver_version == 13000);
  CHECK(driver.alive() == 0);
}

TEST_CASE("a device that is not there, or not ours, is refused in words") {
  FakeDriver driver({.devices = 2, .capability = 75});
  const auto none = Device::open(driver.api(), 2, FakeDriver::images());
  CHECK(none.status().code() == absl::StatusCode::kNotFound);
  CHECK(none.status().message() ==
        "there is no device 2; this process sees 2 (CUDA_VISIBLE_DEVICES)");
  const auto old = Device::open(driver.api(), 1, FakeDriver::images());
  CHECK(old.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(old.status().message() ==
        "Fake GPU has compute capability 7.5; this program has no code that reads");
  CHECK(Device::open(driver.api(), 1, {}).status().code() == absl::StatusCode::kFailedPrecondition);
  driver.fail("cuInit", kCuNoDevice);
  CHECK(Device::open(driver.api(), 0, FakeDriver::images()).status().message() ==
        "cuInit: CUDA_ERROR_NO_DEVICE");
  CHECK(driver.alive() == 0);
}

TEST_CASE("device code that a driver does not take is explained by versions or by targets") {
  FakeDriver driver({.driver_version = 12040});
  std::vector<DeviceImage> images = FakeDriver::images();
  for (const CuResult refusal : {kCuInvalidImage, kCuNoBinaryForGpu, kCuUnsupportedPtx}) {
    driver.fail("cuModuleLoadData", refusal);
    images[0].cuda = 13000;
    const auto newer = Device::open(driver.api(), 0, images);
    CHECK(newer.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(newer.status().message() ==
          "the driver of Fake GPU is for CUDA 12.4, and this program's device code was made by "
          "CUDA 13.0: install driver 580 or newer, or a build made with CUDA 12.x");
    images[0].cuda = 12080;  // the driver's own major version
    CHECK_THAT(std::string(Device::open(driver.api(), 0, images).status().message()),
               Catch::StartsWith("Fake GPU has compute capability 9.0; this program has "));
  }
}

TEST_CASE("a kernel runs over what was copied before, and nothing runs before it must") {
  const Pace pace = GENERATE(Pace::kEager, Pace::kLazy, Pace::kRandom);
  FakeDriver driver({.pace = pace});
  const auto device = open(driver);
  const auto stream = need(device->make_stream());
  const std::vector<float> in = counted(1000);
  const std::size_t bytes = in.size() * sizeof(float);
  const Memory a = need(device->allocate(bytes));
  const Memory b = need(device->allocate(bytes));
  REQUIRE(stream->copy_to_device(a.data(), in.data(), bytes).ok());
  REQUIRE(stream->zero(b.data(), bytes).ok());
  for (int i = 0; i < 3; ++i)
    REQUIRE(stream->launch<Add>(element_grid(in.size()), {a.as<float>(), b.as<float>(), in.size()})
                .ok());
  if (pace == Pace::kLazy) CHECK(driver.log().empty());
  std::vector<float> out(in.size());
  REQUIRE(stream->copy_to_host(out.data(), b.data(), bytes).ok());
  REQUIRE(stream->synchronize().ok());
  for (std::size_t i = 0; i < in.size(); ++i)
    REQUIRE(out[i] == 3 * in[i]);
  CHECK(driver.log() == std::vector<std::string>{"s1 to_device 4000", "s1 set 4000",
                                                 "s1 muster_add", "s1 muster_add", "s1 muster_add",
                                                 "s1 to_host 4000"});
}

TEST_CASE("an event orders two streams, and its lack shows") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    FakeDriver driver({.pace = seed == 1 ? Pace::kLazy : Pace::kRandom, .seed = seed});
    const auto device = open(driver);
    const auto compute = need(device->make_stream());
    const auto copies = need(device->make_stream());
    const auto ready = need(device->make_event());
    const std::vector<float> in = counted(64);
    const Memory memory = need(device->allocate(256));
    const Memory pinned = need(device->allocate_pinned(256));
    REQUIRE(compute->copy_to_device(memory.data(), in.data(), 256).ok());
    REQUIRE(compute->record(*ready).ok());
    REQUIRE(copies->wait_for(*ready).ok());
    REQUIRE(copies->copy_to_host(pinned.data(), memory.data(), 256).ok());
    REQUIRE(copies->synchronize().ok());
    CHECK(std::equal(in.begin(), in.end(), pinned.as<float>()));
    CHECK(*ready->done());
  }
  FakeDriver driver({.pace = Pace::kLazy});
  const auto device = open(driver);
  const auto compute = need(device->make_stream());
  const auto copies = need(device->make_stream());
  const std::vector<float> in = counted(64);
  const Memory memory = need(device->allocate(256));
  std::vector<float> out(64);
  REQUIRE(compute->copy_to_device(memory.data(), in.data(), 256).ok());
  REQUIRE(copies->copy_to_host(out.data(), memory.data(), 256).ok());
  CHECK(out[0] != in[0]);  // NaN: it did not wait
}

TEST_CASE("who waits for an event waits for the record that there was, whatever comes after") {
  for (const Pace pace : {Pace::kEager, Pace::kLazy, Pace::kRandom}) {
    FakeDriver driver({.pace = pace});
    const auto device = open(driver);
    const auto first = need(device->make_stream());
    const auto second = need(device->make_stream());
    const auto event = need(device->make_event());
    const std::vector<float> in = counted(64);
    const Memory memory = need(device->allocate(256));
    const Memory pinned = need(device->allocate_pinned(256));
    REQUIRE(first->copy_to_device(memory.data(), in.data(), 256).ok());
    REQUIRE(first->record(*event).ok());
    REQUIRE(second->wait_for(*event).ok());
    REQUIRE(second->copy_to_host(pinned.data(), memory.data(), 256).ok());
    // The same event again, on the stream that waits, and back.
    REQUIRE(second->record(*event).ok());
    REQUIRE(first->wait_for(*event).ok());
    REQUIRE(first->record(*event).ok());
    REQUIRE(second->wait_for(*event).ok());
    REQUIRE(second->synchronize().ok());
    CHECK(std::equal(in.begin(), in.end(), pinned.as<float>()));
  }
}

TEST_CASE("only timed events tell how long something took, once they were reached") {
  FakeDriver driver;
  const auto device = need(Device::open(driver.api(), 0, FakeDriver::images()));
  const auto stream = need(device->make_stream());
  const auto begin = need(device->make_timed_event());
  const auto end = need(device->make_timed_event());
  const auto untimed = need(device->make_event());
  REQUIRE(stream->record(*begin).ok());
  REQUIRE(stream->record(*end).ok());
  REQUIRE(stream->record(*untimed).ok());
  CHECK(!end->milliseconds_since(*begin).ok());
  REQUIRE(stream->synchronize().ok());
  CHECK(*end->milliseconds_since(*begin) >= 0);
  CHECK(!untimed->milliseconds_since(*begin).ok());
}

TEST_CASE("an event that is asked again and again becomes true") {
  FakeDriver driver({.pace = Pace::kLazy});
  const auto device = open(driver);
  const auto stream = need(device->make_stream());
  const auto event = need(device->make_event());
  CHECK(*event->done());
  const Memory memory = need(device->allocate(1024));
  for (int i = 0; i < 5; ++i)
    REQUIRE(stream->zero(memory.data(), 1024).ok());
  REQUIRE(stream->record(*event).ok());
  int asked = 0;
  while (!*event->done())
    ++asked;
  CHECK(asked == 5);
  CHECK(event->wait().ok());
}

TEST_CASE("pinned memory is read when the copy runs, other memory at the call") {
  FakeDriver driver({.pace = Pace::kLazy});
  const auto device = open(driver);
  const auto stream = need(device->make_stream());
  const Memory pinned = need(device->allocate_pinned(4));
  const Memory memory = need(device->allocate(8));
  float plain = 1;
  *pinned.as<float>() = 1;
  REQUIRE(stream->copy_to_device(memory.data(), &plain, 4).ok());
  REQUIRE(stream->copy_to_device(memory.as<float>() + 1, pinned.data(), 4).ok());
  plain = 2;
  *pinned.as<float>() = 2;
  float out[2] = {};
  REQUIRE(stream->copy_to_host(out, memory.data(), 8).ok());
  CHECK(out[0] == 1);
  CHECK(out[1] == 2);
}

TEST_CASE("memory that runs out says how much was asked for and where") {
  FakeDriver driver({.memory = std::size_t{64} << 20U});
  const auto device = open(driver);
  const Memory most = need(device->allocate(std::size_t{60} << 20U));
  const auto more = device->allocate(std::size_t{20} << 20U);
  CHECK(more.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(more.status().message() ==
        "cuMemAlloc of 20 MiB on device 0: CUDA_ERROR_OUT_OF_MEMORY, out of memory");
  CHECK(need(device->memory()).first == std::size_t{4} << 20U);
}

TEST_CASE("copies beyond an allocation, and a launch that fails, are errors with names") {
  FakeDriver driver;
  const auto device = open(driver);
  const auto stream = need(device->make_stream());
  const Memory memory = need(device->allocate(16));
  const std::vector<float> in = counted(8);
  CHECK(stream->copy_to_device(memory.data(), in.data(), 32).message() ==
        "copy of 32 bytes to memory on device 0: CUDA_ERROR_INVALID_VALUE");
  driver.fail("cuLaunchKernel", kCuInvalidHandle);
  CHECK(stream->launch<Add>({1, 1}, {memory.as<float>(), memory.as<float>(), 4}).message() ==
        "muster_add on device 0: CUDA_ERROR_INVALID_HANDLE");
}

TEST_CASE("what is captured runs when it is replayed, as often as it is") {
  const Pace pace = GENERATE(Pace::kEager, Pace::kLazy, Pace::kRandom);
  FakeDriver driver({.pace = pace});
  const auto device = open(driver);
  const auto stream = need(device->make_stream());
  const std::vector<float> in = counted(64);
  const Memory a = need(device->allocate(256));
  const Memory b = need(device->allocate(256));
  const Memory pinned = need(device->allocate_pinned(256));
  REQUIRE(stream->copy_to_device(a.data(), in.data(), 256).ok());
  REQUIRE(stream->zero(b.data(), 256).ok());
  REQUIRE(stream->synchronize().ok());
  driver.clear_log();
  REQUIRE(stream->begin_capture().ok());
  REQUIRE(stream->launch<Add>({1, 1}, {a.as<float>(), b.as<float>(), 64}).ok());
  REQUIRE(stream->copy_to_host(pinned.data(), b.data(), 256).ok());
  const std::size_t before = driver.alive();
  auto graph = need(stream->end_capture());
  CHECK(driver.alive() == before + 1);
  REQUIRE(stream->synchronize().ok());
  CHECK(driver.log().empty());
  for (int times = 1; times <= 3; ++times) {
    REQUIRE(stream->replay(*graph).ok());
    if (times == 3) graph.reset();  // as soon as it is launched
    REQUIRE(stream->synchronize().ok());
    CHECK(pinned.as<float>()[63] == static_cast<float>(times) * in[63]);
  }
  CHECK(driver.log().size() == 9);
  CHECK(driver.log().front() == "s1 graph of 2");
  CHECK(driver.alive() == before);
}

TEST_CASE("what may wait for a stream spoils a capture, on the thread that captures") {
  FakeDriver driver;
  const auto device = open(driver);
  const auto stream = need(device->make_stream());
  const auto event = need(device->make_event());
  const Memory memory = need(device->allocate(256));
  float plain[64] = {};
  const std::function<absl::Status()> forbidden[] = {
      [&] { return stream->synchronize(); },
      [&] { return event->wait(); },
      [&] { return event->done().status(); },
      [&] { return device->allocate(4).status(); },
      [&] { return device->allocate_pinned(4).status(); },
      [&] { return stream->copy_to_device(memory.data(), plain, 256); },
      [&] { return stream->copy_to_host(plain, memory.data(), 256); }};
  for (const auto& call : forbidden) {
    REQUIRE(stream->begin_capture().ok());
    CHECK_THAT(std::string(call().message()),
               Catch::EndsWith("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"));
    CHECK(stream->end_capture().status().message() ==
          "cuStreamEndCapture on device 0: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED");
    // An ordinary stream again.
    REQUIRE(call().ok());
  }
  REQUIRE(stream->begin_capture().ok());
  CHECK_FALSE(stream->begin_capture().ok());
  std::thread([&] {
    REQUIRE(device->use().ok());
    CHECK(event->done().ok());
  }).join();
  CHECK(stream->end_capture().ok());
  CHECK_FALSE(stream->end_capture().ok());
}

TEST_CASE("everything is given back") {
  FakeDriver driver({.devices = 2});
  {
    const auto device = open(driver, 1);
    const auto stream = need(device->make_stream());
    const auto event = need(device->make_event());
    Memory memory = need(device->allocate(64));
    Memory other = need(device->allocate_pinned(64));
    CHECK(driver.alive() == 5);
    memory = std::move(other);
    REQUIRE(stream->record(*event).ok());
  }
  CHECK(driver.alive() == 0);
}

}  // namespace muster::runtime::cuda
