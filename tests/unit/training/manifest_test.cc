// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/checkpoint/manifest.h"

#include <cmath>
#include <limits>
#include <string>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/unit/training/small_state.h"
#include "worker_runtime/checkpoint/param_hash.h"
#include "worker_runtime/checkpoint/step_name.h"
#include "worker_runtime/data/digest.h"

namespace muster::runtime {
namespace {

using nlohmann::json;
using test::small_layout;

Manifest whole() {
  Manifest manifest = test::small_manifest(7);
  manifest.run = "20260101T000000-abcd";
  manifest.generation = 2;
  manifest.layout_hash = ~std::uint64_t{0};
  manifest.config_digest = 1;
  manifest.param_hash = "00";
  manifest.tensors = stored_tensors(small_layout());
  for (const char* kind : kStreamKinds) {
    manifest.chunks.push_back({std::string(kind) + "-0.f32", kind, 0, 10, 1});
    manifest.chunks.push_back({std::string(kind) + "-1.f32", kind, 10, 7, 2});
  }
  return manifest;
}

// The text with one field changed and the digest made right again: what a wrong writer would do.
std::string forged(const std::function<void(json&)>& change) {
  json document = json::parse(manifest_text(whole()));
  document.erase("manifest_xxh3_64");
  change(document);
  document["manifest_xxh3_64"] = hex64(digest64(document.dump()));
  return document.dump();
}

std::string refusal(const std::string& text) {
  const auto manifest = parse_manifest(text);
  REQUIRE_FALSE(manifest.ok());
  CHECK(absl::IsDataLoss(manifest.status()));
  return std::string(manifest.status().message());
}

TEST_CASE("a manifest reads back as it was") {
  const auto read = parse_manifest(manifest_text(whole()));
  REQUIRE(read.ok());
  CHECK(*read == whole());
}

TEST_CASE("a manifest from before products were noted reads") {
  const auto read = parse_manifest(forged([](json& document) { document.erase("products"); }));
  REQUIRE(read.ok());
  CHECK(read->products.empty());
  CHECK_THAT(refusal(forged([](json& document) { document["products"] = 3; })),
             Catch::Contains("another type"));
}

TEST_CASE("a loss that was not a number does not spoil the checkpoint") {
  Manifest manifest = whole();
  manifest.counters.loss = std::numeric_limits<double>::quiet_NaN();
  const auto read = parse_manifest(manifest_text(manifest));
  REQUIRE(read.ok());
  CHECK(read->counters.loss == 0);
}

TEST_CASE("no byte of a manifest can change unnoticed") {
  const std::string text = manifest_text(whole());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string torn = text;
    torn[i] = static_cast<char>(torn[i] ^ 1);
    const auto read = parse_manifest(torn);
    INFO("byte " << i);
    if (read.ok()) CHECK(*read == whole());  // white space became other white space
  }
  for (std::size_t size = 0; size + 2 < text.size(); ++size) {
    CHECK_FALSE(parse_manifest(text.substr(0, size)).ok());
  }
}

TEST_CASE("a manifest whose chunks do not cover its tensors is refused") {
  CHECK_THAT(refusal(forged([](json& j) { j["chunks"].erase(1); })),
             Catch::Contains("chunks of 'master' end at element 10 of 17"));
  CHECK_THAT(refusal(forged([](json& j) { j["chunks"][1]["first"] = 9; })),
             Catch::Contains("do not join at element 10"));
  CHECK_THAT(refusal(forged([](json& j) { j["chunks"][1]["count"] = 8; })),
             Catch::Contains("do not join"));
  CHECK_THAT(refusal(forged([](json& j) { j["chunks"][0]["file"] = "../master-0.f32"; })),
             Catch::Contains("not a plain, unique name"));
  CHECK_THAT(refusal(forged([](json& j) { j["tensors"][0]["dims"] = {6}; })),
             Catch::Contains("tensor b is not where it should be"));
  CHECK_THAT(refusal(forged([](json& j) { j["tensors"][0]["dims"] = {-5}; })),
             Catch::Contains("impossible shape"));
  CHECK_THAT(refusal(forged([](json& j) { j["chunks"][0]["xxh3_64"] = "zz"; })),
             Catch::Contains("'zz' is not a hexadecimal digest"));
  CHECK_THAT(refusal(forged([](json& j) { j.erase("counters"); })),
             Catch::Contains("there is no \"counters\""));
  CHECK_THAT(refusal("[]"), Catch::Contains("not a checkpoint manifest"));
  CHECK(absl::IsUnimplemented(parse_manifest(forged([](json& j) { j["version"] = 2; })).status()));
}

TEST_CASE("the parameter hash is the one that is specified") {
  // XXH3-128 of: "a\0", 2, 3, 4, 12 floats, "b\0", 1, 5, 5 floats; computed by hand below.
  FlatLayout layout = small_layout();
  const std::vector<float> master = test::small_tensors(1).master;
  std::string bytes;
  const auto add = [&bytes](const auto& value) {
    const auto* raw = reinterpret_cast<const char*>(&value);
    bytes.append(raw, sizeof(value));
  };
  bytes.append("a\0", 2);
  add(std::uint32_t{2});
  add(std::uint64_t{3});
  add(std::uint64_t{4});
  for (std::size_t i = 0; i < 12; ++i)
    add(master[64 + i]);
  bytes.append("b\0", 2);
  add(std::uint32_t{1});
  add(std::uint64_t{5});
  for (std::size_t i = 0; i < 5; ++i)
    add(master[i]);
  Digest128 expected;
  expected.add(std::as_bytes(std::span(bytes)));
  CHECK(param_hash(layout, master) == expected.hex());
  std::vector<float> padded = master;
  padded[10] = 1;  // between the tensors
  CHECK(param_hash(layout, padded) == expected.hex());
  padded[64] += 1;
  CHECK(param_hash(layout, padded) != expected.hex());
}

TEST_CASE("only our own names are taken for checkpoints") {
  CHECK(parse_step_name("step-0")->step == 0);
  CHECK(parse_step_name("step-120")->suffix.empty());
  CHECK(parse_step_name("step-5.tmp-g0-x")->suffix == ".tmp-g0-x");
  for (const char* name : {"step-", "step-x", "step-007", "step-5x", "LATEST", "step--1",
                           "step-99999999999999999999"}) {
    CHECK_FALSE(parse_step_name(name).has_value());
  }
  CHECK(is_temporary("step-5.tmp-g0-x"));
  CHECK(is_temporary("FENCE.tmp-x"));
  CHECK_FALSE(is_temporary("step-5.bad-x"));
  CHECK_FALSE(is_temporary("step-5"));
}

}  // namespace
}  // namespace muster::runtime
