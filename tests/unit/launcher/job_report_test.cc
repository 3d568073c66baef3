// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/job_report.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace muster::launcher {
namespace {

rendezvous::ServerDescription server_with(const std::vector<rendezvous::MemberView>& members) {
  rendezvous::JobView job;
  job.spec.job = "j";
  job.members = members;
  rendezvous::ServerDescription server;
  server.jobs.push_back(job);
  return server;
}

}  // namespace

TEST_CASE("status names the GPUs of each node that has any") {
  rendezvous::MemberView with;
  with.node = "a";
  with.addr = "10.0.0.1";
  with.connected = true;
  with.ranks = MemberRanks{"a", 0, 0, 8};
  with.gpus = 8;
  with.gpu = "NVIDIA H200, driver 580.65.06";
  rendezvous::MemberView without = with;
  without.node = "b";
  without.gpus = 0;
  without.gpu.clear();
  const rendezvous::ServerDescription server = server_with({with, without});
  const std::string text = report_text(server);
  CHECK(text.find("  a  10.0.0.1  ranks 0-7  8 GPUs (NVIDIA H200, driver 580.65.06)\n") !=
        std::string::npos);
  CHECK(text.find("  b  10.0.0.1  ranks 0-7\n") != std::string::npos);
  const auto members = nlohmann::json::parse(report_json(server))["jobs"][0]["members"];
  CHECK(members[0]["gpus"] == 8);
  CHECK(members[0]["gpu"] == "NVIDIA H200, driver 580.65.06");
  CHECK(members[1]["gpus"] == 0);
  CHECK_FALSE(members[1].contains("gpu"));
}

TEST_CASE("status says which nodes are suspended") {
  rendezvous::MemberView member;
  member.node = "a";
  member.connected = true;
  member.suspended = true;
  const rendezvous::ServerDescription server = server_with({member});
  CHECK(report_text(server).find("  a  -  waiting  suspended (SIGTSTP)\n") != std::string::npos);
  const auto members = nlohmann::json::parse(report_json(server))["jobs"][0]["members"];
  CHECK(members[0]["suspended"] == true);
}

TEST_CASE("status tells how often the job recovered, how fast, and what was lost") {
  rendezvous::ServerDescription server = server_with({});
  CHECK(report_text(server).find("recovered") == std::string::npos);
  auto job = nlohmann::json::parse(report_json(server))["jobs"][0];
  CHECK(job["recoveries"] == nlohmann::json({{"count", 0}}));
  server.jobs[0].goodput = 0.9876;
  server.jobs[0].recoveries = {3, 1ms, 20ms, 5ms, 180ms, 206ms};
  CHECK(report_text(server).find("  recovered 3 times, in the median in 206ms; goodput 98 %\n") !=
        std::string::npos);
  job = nlohmann::json::parse(report_json(server))["jobs"][0];
  CHECK(job["goodput"] == 0.9876);
  CHECK(job["recoveries"]["count"] == 3);
  CHECK(job["recoveries"]["median_stop_s"] == 0.02);
  CHECK(job["recoveries"]["median_total_s"] == 0.206);
}

}  // namespace muster::launcher
