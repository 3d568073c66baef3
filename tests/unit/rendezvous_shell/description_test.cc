// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/description.h"

#include <catch2/catch.hpp>

#include "proto/wire/limits.h"

namespace muster::rendezvous {
namespace {

constexpr std::size_t kMost = wire::kMaxMessageBytes;

JobView job_of(const std::string& name, std::uint32_t nodes, std::uint32_t ranks) {
  JobView job;
  job.spec.job = name;
  job.spec.program = "/opt/train/venv/bin/python -u /opt/train/main.py --config /opt/big.json";
  job.run = "20260101T000000-abcd";
  for (std::uint32_t i = 0; i < nodes; ++i) {
    MemberView member;
    member.node = "gpu-node-" + std::to_string(10000 + i) + ".cluster.example.org";
    member.host = member.node;
    member.addr = "10.11.12.13";
    member.slots = ranks;
    member.incarnation = i;
    member.ranks = MemberRanks{member.node, i, i * ranks, ranks};
    member.heartbeat_age = 999ms;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      member.progress.push_back({i * ranks + rank, 1000000, 1000000, 900ms});
    job.members.push_back(std::move(member));
  }
  return job;
}

Failure large_failure() {
  Failure failure;
  failure.node = "a";
  failure.stderr_tail.assign(wire::kMaxStderrTailBytes, 'e');
  failure.error_file.assign(wire::kMaxErrorFileBytes, 'f');
  return failure;
}

v1::DescribeReply described(std::size_t most, const std::vector<JobView>& jobs) {
  v1::DescribeReply reply;
  describe_within(most, jobs, reply);
  CHECK(reply.ByteSizeLong() <= most + wire::kMaxNameBytes + 8);
  return reply;
}

}  // namespace

TEST_CASE("ten thousand nodes with eight ranks each are described whole", "[description]") {
  const v1::DescribeReply reply = described(kMost, {job_of("big", 10000, 8)});
  CHECK(reply.left_out().empty());
  REQUIRE(reply.jobs_size() == 1);
  CHECK(reply.jobs(0).members_size() == 10000);
  CHECK(reply.jobs(0).members(9999).progress_size() == 8);
  INFO(reply.ByteSizeLong());
  CHECK(reply.ByteSizeLong() < kMost / 2);
}

TEST_CASE("the largest jobs lose most, and the reply says what", "[description]") {
  const std::vector<JobView> jobs = {job_of("big", 200, 8), job_of("middle", 100, 8),
                                     job_of("small", 2, 8)};
  std::vector<std::size_t> bytes;
  for (const JobView& job : jobs)
    bytes.push_back(described(kMost, {job}).ByteSizeLong());
  const std::size_t all = bytes[0] + bytes[1] + bytes[2];
  CHECK(described(all + 100, jobs).left_out().empty());

  const v1::DescribeReply less = described(all - 100, jobs);
  CHECK(less.left_out() == "the progress of 1 job (big)");
  REQUIRE(less.jobs_size() == 3);
  CHECK(less.jobs(0).members_size() == 200);
  CHECK(less.jobs(0).members(0).progress_size() == 0);
  CHECK(less.jobs(1).members(0).progress_size() == 8);

  const v1::DescribeReply little = described(bytes[2] + 2000, jobs);
  CHECK(little.left_out() == "the nodes of 2 jobs (big, middle)");
  CHECK(little.jobs(0).members_size() == 0);
  CHECK(little.jobs(0).spec().job() == "big");
  CHECK(little.jobs(2).members_size() == 2);

  const v1::DescribeReply none = described(10, jobs);
  CHECK(none.jobs_size() == 0);
  CHECK(none.left_out() == "3 jobs (big, middle, small)");
}

TEST_CASE("what failures left behind goes first", "[description]") {
  JobView job = job_of("j", 10, 2);
  job.last_failure = large_failure();
  job.outcome.emplace();
  job.outcome->first_cause = large_failure();
  job.outcome->victims.assign(wire::kMaxVictims, large_failure());
  std::vector<JobView> jobs(3, job);  // some 19 MB each
  const v1::DescribeReply reply = described(kMost, jobs);
  REQUIRE(reply.jobs_size() == 3);
  CHECK(reply.jobs(0).outcome().victims_size() == static_cast<int>(wire::kMaxVictims));
  CHECK(reply.jobs(2).outcome().victims_size() == 0);
  CHECK(reply.jobs(2).outcome().first_cause().node() == "a");
  CHECK(reply.jobs(2).members(9).progress_size() == 2);
  CHECK(reply.left_out() == "what failures left behind in 2 jobs (j, j)");
}

}  // namespace muster::rendezvous
