// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/admission.h"

#include <catch2/catch.hpp>

namespace {

using namespace muster;              // NOLINT: a test
using namespace muster::rendezvous;  // NOLINT: a test

using Why = JoinRefused::Why;

Join join() {
  Join made;
  made.spec.job = "j";
  made.spec.program = "train.py";
  made.node.name = "a";
  return made;
}

Envelope envelope() {
  Envelope made;
  made.job = "j";
  made.node = "a";
  return made;
}

std::optional<Why> why(const std::optional<JoinRefused>& refused) {
  if (!refused) return std::nullopt;
  CHECK_FALSE(refused->text.empty());
  CHECK(refused->exit_code == 2);
  return refused->why;
}

}  // namespace

TEST_CASE("a sound join has nothing against it") {
  CHECK_FALSE(refused_for_content(envelope(), join()).has_value());
  CHECK_FALSE(refused_by_server({}, join()).has_value());
  CHECK_FALSE(refused_by_job(join().spec, {1, 1}, join(), "").has_value());
}

TEST_CASE("content that makes no sense is refused") {
  const auto refused = [](auto change) {
    Join bad = join();
    Envelope around = envelope();
    change(bad, around);
    return why(refused_for_content(around, bad)) == Why::kInvalid;
  };
  CHECK(refused([](Join& j, Envelope& e) { j.spec.job = e.job = ""; }));
  CHECK(refused([](Join& j, Envelope& e) { j.spec.job = e.job = std::string(256, 'x'); }));
  CHECK(refused([](Join& j, Envelope& e) { j.node.name = e.node = ""; }));
  CHECK(refused([](Join&, Envelope& e) { e.job = "other"; }));
  CHECK(refused([](Join&, Envelope& e) { e.node = "other"; }));
  CHECK(refused([](Join& j, Envelope&) { j.spec.min_nodes = 0; }));
  CHECK(refused([](Join& j, Envelope&) { j.spec.min_nodes = 2; }));
  CHECK(refused([](Join& j, Envelope&) { j.node.slots = 0; }));
  CHECK(refused([](Join& j, Envelope&) { j.node.slots = kMaxSlots + 1; }));
  // What one fault of a node becomes for each of its workers counts.
  const auto faults_on = [](const char* name, std::size_t count) {
    Fault fault;
    fault.on.node = name;
    return std::vector<Fault>(count, fault);
  };
  CHECK(refused([&](Join& j, Envelope&) { j.spec.faults.faults = faults_on("b", 1025); }));
  CHECK(refused([&](Join& j, Envelope&) {
    j.spec.faults.faults = faults_on("a", 2);
    j.node.slots = 513;
  }));
  CHECK_FALSE(refused([&](Join& j, Envelope&) {
    j.spec.faults.faults = faults_on("a", 2);
    j.node.slots = 512;
  }));
  CHECK(refused([](Join& j, Envelope&) { j.spec.policy.heartbeat = 0s; }));
  CHECK(refused([](Join& j, Envelope&) { j.spec.policy.join_timeout = -1s; }));
  CHECK(refused([](Join& j, Envelope&) { j.spec.policy.stop_grace = Duration::max(); }));
}

TEST_CASE("refusals name the holder and what differs") {
  Options options;
  options.only_job = "mine";
  options.holder = "host gpu-1, pid 42, user ann";
  const auto other = refused_by_server(options, join());
  CHECK(why(other) == Why::kOtherJob);
  CHECK(other->text ==
        "this server (host gpu-1, pid 42, user ann) serves job \"mine\" only, "
        "not \"j\"");

  Join program = join();
  program.spec.program_hash = 1;
  program.spec.program = "other.py";
  CHECK(why(refused_by_job(join().spec, {1, 1}, program, "")) == Why::kOtherProgram);
  CHECK(refused_by_job(join().spec, {1, 1}, program, "")->text ==
        "job \"j\" runs program \"train.py\", not \"other.py\"");

  Join nodes = join();
  nodes.spec.max_nodes = 3;
  CHECK(refused_by_job(join().spec, {1, 1}, nodes, "h")->text ==
        "job \"j\" (h) has --nnodes 1, not 1:3");
  CHECK(why(refused_by_job(join().spec, {1, 1}, nodes, "")) == Why::kOtherNodes);

  // A job that was scaled: agents bring the old numbers or the new ones.
  CHECK_FALSE(refused_by_job(join().spec, {1, 3}, nodes, "").has_value());
  CHECK_FALSE(refused_by_job(join().spec, {1, 3}, join(), "").has_value());
  CHECK(why(refused_by_job(join().spec, {2, 3}, nodes, "")) == Why::kOtherNodes);

  Join faults = join();
  faults.spec.faults.seed = 3;
  CHECK(why(refused_by_job(join().spec, {1, 1}, faults, "")) == Why::kOtherFaultPlan);
}
