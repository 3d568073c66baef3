// SPDX-License-Identifier: Apache-2.0
//
// NCCL's variables: which are in force, and which are explained.
#include "worker_runtime/cuda/nccl_settings.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"

namespace muster::runtime::cuda {
namespace {

using Lines = std::vector<std::string>;

Lines described(const Lines& environment) {
  return describe_settings(settings_in_force(environment, {}));
}

}  // namespace

TEST_CASE("a file of NCCL's is read as NCCL reads it") {
  const auto settings = parse_nccl_conf(
      "# comment\n"
      "NCCL_DEBUG=INFO\n"
      "\n"
      "no value here\n"
      "NCCL_IB_HCA==mlx5_0,mlx5_1\n"
      " # NCCL_ALGO=Ring\n"
      "=nameless\n"
      "NCCL_SOCKET_IFNAME=",
      "/etc/nccl.conf");
  const std::vector<NcclSetting> want{{"NCCL_DEBUG", "INFO", "/etc/nccl.conf"},
                                      {"NCCL_IB_HCA", "=mlx5_0,mlx5_1", "/etc/nccl.conf"},
                                      {" # NCCL_ALGO", "Ring", "/etc/nccl.conf"},
                                      {"NCCL_SOCKET_IFNAME", "", "/etc/nccl.conf"}};
  CHECK(settings == want);
  CHECK(parse_nccl_conf("", "x").empty());
}

TEST_CASE("the environment wins over files, and the first file over the second") {
  const auto settings = settings_in_force(
      {"HOME=/root", "NCCL_DEBUG=WARN", "TORCH_NCCL_BLOCKING_WAIT=1", "MY_NCCL_X=1", "broken"},
      {{{"NCCL_DEBUG", "INFO", "own"}, {"NCCL_ALGO", "Ring", "own"}},
       {{"NCCL_ALGO", "Tree", "/etc/nccl.conf"}, {"NCCL_NVLS_ENABLE", "0", "/etc/nccl.conf"}}});
  const std::vector<NcclSetting> want{{"NCCL_ALGO", "Ring", "own"},
                                      {"NCCL_DEBUG", "WARN", "environment"},
                                      {"NCCL_NVLS_ENABLE", "0", "/etc/nccl.conf"},
                                      {"TORCH_NCCL_BLOCKING_WAIT", "1", "environment"}};
  CHECK(settings == want);
}

TEST_CASE("what is set is listed once, and what hurts is explained with its source") {
  CHECK(describe_settings({}).empty());
  CHECK(described({"NCCL_DEBUG=WARN", "NCCL_SOCKET_IFNAME=eth"}) ==
        Lines{"NCCL settings: NCCL_DEBUG=WARN NCCL_SOCKET_IFNAME=eth"});
  CHECK(described({"NCCL_P2P_DISABLE=0", "NCCL_COMM_BLOCKING=0"}).size() == 1);
  const Lines lines = describe_settings({{"NCCL_COMM_BLOCKING", "1", "/etc/nccl.conf"}});
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "NCCL settings: NCCL_COMM_BLOCKING=1 (/etc/nccl.conf)");
  CHECK(lines[1] ==
        "NCCL_COMM_BLOCKING=1 in /etc/nccl.conf makes every call wait for all ranks: a rank that "
        "is gone cannot be noticed in time; unset it");
  for (const char* one :
       {"NCCL_ALGO=Ring", "NCCL_PROTO=LL", "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1",
        "NCCL_IB_DISABLE=1", "NCCL_BLOCKING_WAIT=1", "TORCH_NCCL_BLOCKING_WAIT=1",
        "NCCL_ASYNC_ERROR_HANDLING=1", "NCCL_MULTI_RANK_GPU_ENABLE=1", "NCCL_CHECKS_DISABLE=1"}) {
    const Lines both = described({one});
    REQUIRE(both.size() == 2);
    CHECK(both[1].starts_with(one));
  }
}

TEST_CASE("blanks that NCCL takes for a part of name or value are pointed out") {
  const Lines lines =
      describe_settings(parse_nccl_conf("NCCL_DEBUG =INFO\nNCCL_NET= IB\n", "f.conf"));
  REQUIRE(lines.size() == 3);
  CHECK(lines[1].find("\"NCCL_DEBUG =INFO\" in f.conf") != std::string::npos);
  CHECK(lines[2].find("\"NCCL_NET= IB\" in f.conf") != std::string::npos);
}

TEST_CASE("the process's own: NCCL_CONF_FILE is followed") {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/nccl.conf";
  std::ofstream(path) << "NCCL_TEST_ONLY_A=1\nNCCL_TEST_ONLY_B=1\n";
  ::setenv("NCCL_CONF_FILE", path.c_str(), 1);
  ::setenv("NCCL_TEST_ONLY_B", "2", 1);
  const auto settings = nccl_settings_of_process();
  ::unsetenv("NCCL_CONF_FILE");
  ::unsetenv("NCCL_TEST_ONLY_B");
  const auto has = [&](const NcclSetting& one) {
    return std::find(settings.begin(), settings.end(), one) != settings.end();
  };
  CHECK(has({"NCCL_TEST_ONLY_A", "1", path}));
  CHECK(has({"NCCL_TEST_ONLY_B", "2", "environment"}));
}

}  // namespace muster::runtime::cuda
