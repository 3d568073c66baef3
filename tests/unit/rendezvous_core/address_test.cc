// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/address.h"

#include <catch2/catch.hpp>

#include "launcher/rendezvous/core/run_id.h"

namespace {

using namespace muster;              // NOLINT: a test
using namespace muster::rendezvous;  // NOLINT: a test

Member member(const std::string& name, const std::string& observed, const std::string& dialed) {
  Member made;
  made.facts.name = name;
  made.facts.host = name;
  made.facts.boot_id = "boot-" + name;
  made.facts.dialed_addr = dialed;
  made.observed_addr = observed;
  return made;
}

}  // namespace

TEST_CASE("loopback in its spellings") {
  for (const char* address :
       {"127.0.0.1", "127.0.0.3", "::1", "[::1]", "::ffff:127.0.0.1", "localhost"}) {
    CHECK(is_loopback(address));
  }
  for (const char* address : {"10.0.0.1", "::2", "128.0.0.1", "local", "", "1.127.0.0"}) {
    CHECK_FALSE(is_loopback(address));
  }
}

TEST_CASE("MASTER_ADDR: advertised, else how the others reach it, else what the server saw") {
  Member a = member("a", "10.0.0.1", "10.0.0.9");
  Member b = member("b", "10.0.0.2", "10.0.0.9");
  CHECK(choose_master_address({&a, &b}).addr == "10.0.0.1");
  a.facts.advertise_addr = "a.cluster";
  CHECK(choose_master_address({&a, &b}).addr == "a.cluster");

  Member host = member("h", "", "127.0.0.1");  // in-process session of the hosting node
  host.facts.hosts_server = true;
  CHECK(choose_master_address({&host, &b}).addr == "10.0.0.9");
  CHECK(choose_master_address({&host}).addr == "127.0.0.1");
  // It dialed its own endpoint: what it saw of itself is not what others use.
  host.observed_addr = "127.0.0.1";
  CHECK(choose_master_address({&host, &b}).addr == "10.0.0.9");
}

TEST_CASE("a loopback MASTER_ADDR is refused where the generation spans hosts") {
  Member a = member("a", "127.0.0.1", "127.0.0.1");
  Member b = member("b", "10.0.0.2", "10.0.0.9");
  const MasterAddress refused = choose_master_address({&a, &b});
  CHECK(refused.refusal.find("node b is on another host (10.0.0.2)") != std::string::npos);
  CHECK(refused.refusal.find("--advertise-addr") != std::string::npos);
  // 127.0.0.2 and 127.0.0.3 are one host, whatever the nodes call themselves.
  b.observed_addr = "127.0.0.3";
  CHECK(choose_master_address({&a, &b}).refusal.empty());
  // So is one host seen at two of its addresses.
  b.observed_addr = "10.0.0.2";
  b.facts.host = a.facts.host;
  b.facts.boot_id = a.facts.boot_id;
  CHECK(choose_master_address({&a, &b}).refusal.empty());
}

TEST_CASE("without any address nothing is assumed") {
  Member a = member("a", "", "");
  Member b = member("b", "10.0.0.2", "10.0.0.9");
  CHECK_FALSE(choose_master_address({&a, &b}).refusal.empty());
  CHECK(choose_master_address({&a}).addr == "127.0.0.1");
}

TEST_CASE("run ids carry the UTC second and four digits of chance") {
  Rng rng(1);
  const RunId id = mint_run_id(1768642200000000, rng);
  CHECK(id.substr(0, 17) == "20260117T093000Z-");
  CHECK(id.size() == 21);
  CHECK(mint_run_id(0, rng).starts_with("19700101T000000Z-"));
  CHECK(mint_run_id(951782399999999, rng).starts_with("20000228T235959Z-"));
  CHECK(mint_run_id(951782400000000, rng).starts_with("20000229T000000Z-"));
}
