// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/placement.h"

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "launcher/commands/text.h"
#include "launcher/commands/topology.h"
#include "tests/support/temp_dir.h"

namespace muster::launcher {
namespace {

namespace fs = std::filesystem;
using Places = std::vector<std::vector<int>>;
using enum NumaBinding;

// Two NUMA nodes of two cores with two threads each, as many machines number them.
const std::vector<Domain> kTwo{{{{0, 4}, {1, 5}}}, {{{2, 6}, {3, 7}}}};

Places placed(NumaBinding binding, std::uint32_t workers,
              const std::vector<std::optional<std::size_t>>& near = {}) {
  const auto places = place_workers(binding, kTwo, workers, near);
  REQUIRE(places.ok());
  return *places;
}

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("workers share the processors of the part that they are bound to") {
  CHECK(placed(kNode, 1) == Places{{0, 1, 4, 5}});
  CHECK(placed(kNode, 2) == Places{{0, 1, 4, 5}, {2, 3, 6, 7}});
  CHECK(placed(kNode, 3) == Places{{0, 1, 4, 5}, {0, 1, 4, 5}, {2, 3, 6, 7}});
  CHECK(placed(kSocket, 2, {1, 0}) == Places{{2, 3, 6, 7}, {0, 1, 4, 5}});
  CHECK(placed(kNode, 2, {std::nullopt, 0}) == Places{{0, 1, 4, 5}, {0, 1, 4, 5}});
}

TEST_CASE("exclusive: whole cores, each for one worker") {
  CHECK(placed(kExclusive, 2) == Places{{0, 1, 4, 5}, {2, 3, 6, 7}});
  CHECK(placed(kExclusive, 4) == Places{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(placed(kExclusive, 2, {1, 1}) == Places{{2, 6}, {3, 7}});
  CHECK(place_workers(kExclusive, kTwo, 5, {}).status().message() ==
        "NUMA node 0 has 2 cores for 3 workers");
}

TEST_CASE("lists of processors are written and read as the kernel does") {
  CHECK(processor_list({0, 1, 2, 8, 10, 11}) == "0-2,8,10-11");
  CHECK(processor_list({}).empty());
  CHECK(parse_processor_list("0-2,8,10-11\n") == std::vector<int>{0, 1, 2, 8, 10, 11});
  for (const char* bad : {"", "x", "3-1", "0-", "-1", "1-2-3", "0-99999999"}) {
    INFO(bad);
    CHECK(parse_processor_list(bad).empty());
  }
}

TEST_CASE("hwloc tells what this machine looks like") {
  for (const NumaBinding binding : {kNode, kSocket, kCoreComplex, kExclusive}) {
    const auto domains = find_domains(binding);
    REQUIRE(domains.ok());
    std::size_t processors = 0;
    for (const Domain& domain : *domains)
      processors += domain.processors();
    CHECK(processors == count_cpus({.cgroup = "/nowhere"}));
  }
  CHECK_FALSE(find_domains(kNode, "no machine").ok());
}

TEST_CASE("a machine of two packages, each with two caches") {
  const std::string machine = "pack:2 [numa] l3:2 core:2 pu:2";
  CHECK(find_domains(kNode, machine)->size() == 2);
  CHECK(find_domains(kSocket, machine)->size() == 2);
  const auto caches = find_domains(kCoreComplex, machine);
  REQUIRE(caches->size() == 4);
  CHECK((*caches)[1].cores == std::vector<Core>{{4, 5}, {6, 7}});
  CHECK((*find_domains(kExclusive, machine))[1].processors() == 8);
}

TEST_CASE("a worker belongs near its GPU") {
  const muster::testing::TempDir dir;
  const NodeProbe probe{.proc = dir.path() + "/proc"};
  const auto gpu = [&](const std::string& address, const std::string& uuid,
                       const std::string& near) {
    put(probe.proc + "/driver/nvidia/gpus/" + address + "/information",
        "Model: \t\t NVIDIA H200\nGPU UUID: \t " + uuid + "\n");
    put(dir.path() + "/bus/pci/devices/" + address + "/local_cpulist", near + "\n");
  };
  gpu("0000:81:00.0", "GPU-bbbb", "0-1,4-5");
  gpu("0000:1b:00.0", "GPU-aaaa", "2-3,6-7");
  gpu("0000:c1:00.0", "GPU-cccc", "0-7");
  using Found = std::vector<std::optional<std::size_t>>;
  const auto domains = [&](const std::vector<std::string>& devices, const auto& of) {
    return domains_of_devices(devices, of, probe, dir.path());
  };
  CHECK(domains({"0", "1", "2", "3"}, kTwo) == Found{1, 0, std::nullopt, std::nullopt});
  CHECK(domains({"GPU-bbbb", "GPU-aa", "GPU-x", "MIG-1"}, kTwo) ==
        Found{0, 1, std::nullopt, std::nullopt});
  // A mask names some of those that are there.
  NodeProbe node = probe;
  node.devices = dir.path() + "/dev";
  for (const char* name : {"nvidia0", "nvidia1", "nvidia2", "nvidiactl"})
    put(node.devices + "/" + name, "");
  CHECK(visible_gpus({{"CUDA_VISIBLE_DEVICES", "1"}}, node) == std::vector<std::string>{"1"});
  CHECK(visible_gpus({}, node) == std::vector<std::string>{"0", "1", "2"});
  // Two caches of its NUMA node are equally near: taken in turn.
  const std::vector<Domain> caches{{{{0, 4}}}, {{{1, 5}}}, {{{2, 6}}}, {{{3, 7}}}};
  CHECK(domains({"1", "1", "0"}, caches) == Found{0, 1, 2});
}

}  // namespace muster::launcher
