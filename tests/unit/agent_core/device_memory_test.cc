// SPDX-License-Identifier: Apache-2.0
#include "agent/core/device_memory.h"

#include <catch2/catch.hpp>

namespace muster::agent {
namespace {

constexpr std::uint64_t kGib = 1U << 30U;
using Words = std::vector<std::string>;

DeviceUse gpu(int index, std::uint64_t used, std::vector<std::int64_t> pids = {}) {
  return {"GPU " + std::to_string(index), used, 80 * kGib, std::move(pids)};
}

}  // namespace

TEST_CASE("devices that are nearly empty are free at the first look") {
  DeviceMemory memory({100, 101}, 5s);
  const auto verdict = memory.look({gpu(0, kGib), gpu(1, 0)}, 10ms);
  CHECK(verdict.over);
  CHECK(verdict.holder.empty());
  DeviceMemory none({100}, 5s);
  CHECK(none.look({}, 0ms).over);  // no device
}

TEST_CASE("a process that is gone but listed is waited for, and named when the patience is over") {
  DeviceMemory memory({100, 101}, 2s);
  CHECK_FALSE(memory.look({gpu(0, 0), gpu(1, 40 * kGib, {7, 101})}, 0ms).over);
  CHECK_FALSE(memory.look({gpu(0, 0), gpu(1, 40 * kGib, {7, 101})}, 1900ms).over);
  SECTION("it goes") {
    CHECK(memory.look({gpu(0, 0), gpu(1, 0, {7})}, 1950ms).holder.empty());
  }
  SECTION("it stays") {
    const auto verdict = memory.look({gpu(0, 0), gpu(1, 40 * kGib + kGib / 8, {7, 101})}, 2s);
    CHECK(verdict.over);
    CHECK(verdict.holder == "pid 101, which ended, still holds memory of GPU 1 (40.1 GiB in use)");
  }
}

TEST_CASE("memory that falls is waited for, whoever it belongs to") {
  DeviceMemory memory({100}, 5s);
  CHECK_FALSE(memory.look({gpu(0, 70 * kGib)}, 0ms).over);
  CHECK_FALSE(memory.look({gpu(0, 50 * kGib)}, 250ms).over);
  CHECK_FALSE(memory.look({gpu(0, 30 * kGib)}, 500ms).over);
  SECTION("until it is free") {
    CHECK(memory.look({gpu(0, kGib / 2)}, 550ms).over);
  }
  SECTION("until the rest stays: that is somebody else's") {
    CHECK_FALSE(memory.look({gpu(0, 30 * kGib)}, 700ms).over);
    const auto verdict = memory.look({gpu(0, 30 * kGib)}, 800ms);
    CHECK(verdict.over);
    CHECK(verdict.holder.empty());
  }
  SECTION("until the patience is over") {
    const auto verdict = memory.look({gpu(0, 20 * kGib)}, 5s);
    CHECK(verdict.over);
    CHECK(verdict.holder == "GPU 0 still frees memory (20.0 GiB in use)");
  }
}

TEST_CASE("a full device where nothing falls is not ours, however late the first look was") {
  DeviceMemory memory({100}, 5s);
  CHECK_FALSE(memory.look({gpu(0, 70 * kGib, {7})}, 2s).over);
  CHECK_FALSE(memory.look({gpu(0, 70 * kGib - 1024, {7})}, 2200ms).over);
  CHECK(memory.look({gpu(0, 70 * kGib, {7})}, 2300ms).over);
}

TEST_CASE("the mask of visible devices is read as the driver reads it") {
  CHECK(visible_devices(std::nullopt, 3) == Words{"0", "1", "2"});
  CHECK(visible_devices("2, 0", 3) == Words{"2", "0"});
  CHECK(visible_devices("0,3,1", 3) == Words{"0"});
  CHECK(visible_devices("0,-1,1", 3) == Words{"0"});
  CHECK(visible_devices("0,,1", 3) == Words{"0"});
  CHECK(visible_devices("1,1", 3).empty());
  CHECK(visible_devices("", 3).empty());
  CHECK(visible_devices("none", 3).empty());
  CHECK(visible_devices("GPU-8f,MIG-1", 1) == Words{"GPU-8f", "MIG-1"});
}

}  // namespace muster::agent
