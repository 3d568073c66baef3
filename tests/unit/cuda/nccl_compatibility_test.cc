// SPDX-License-Identifier: Apache-2.0
//
// What fits together and what does not: one line that names the rank and what to install.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "proto/base/rng.h"
#include "worker_runtime/cuda/blas_api.h"
#include "worker_runtime/cuda/compatibility.h"
#include "worker_runtime/cuda/driver_api.h"

namespace muster::runtime::cuda {
namespace {

RankFacts good(int number, const std::string& host = "alpha/b007") {
  return {.host = host,
          .device = "NVIDIA H100",
          .uuid = "GPU-" + std::to_string(number),
          .pci_bus = "0000:1b:00.0",
          .capability = 90,
          .driver = 580,
          .driver_cuda = 13000,
          .libraries_cuda = 13000,
          .nccl = 22809};
}

template <class Change>
std::string refusal(Change change) {
  std::vector<RankFacts> facts{good(0), good(1), good(2, "beta/b111")};
  change(facts[2]);
  const absl::Status found = check_ranks(facts);
  if (!found.ok()) CHECK(found.code() == absl::StatusCode::kFailedPrecondition);
  return std::string(found.message());
}

}  // namespace

TEST_CASE("the driver's branch is read from what either kernel module says") {
  CHECK(driver_branch("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 "
                      "01:15:15 UTC 2023") == 535);
  CHECK(driver_branch("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  "
                      "Release Build  (dvs-builder@U22-I3)") == 580);
  for (const char* none : {"", "NVRM version: NVIDIA UNIX x86_64 Kernel Module", "580", "v580.65"})
    CHECK(driver_branch(none) == 0);
}

TEST_CASE("drivers, CUDA, NCCL and devices that fit are let through") {
  CHECK(refusal([](RankFacts&) {}).empty());
  CHECK(refusal([](RankFacts& f) { f.driver = 0; }).empty());
  CHECK(refusal([](RankFacts& f) { f.capability = 80; }).empty());
  // A newer driver runs older libraries.
  CHECK(refusal([](RankFacts& f) { f.libraries_cuda = 12040; }).empty());
  CHECK(refusal([](RankFacts& f) {
          f.libraries_cuda = 12080;
          f.driver = 525;
          f.driver_cuda = 12000;
        }).empty());
  CHECK(check_ranks({}).ok());
}

TEST_CASE("what does not fit is said in one line, with the rank and what to install") {
  CHECK(refusal([](RankFacts& f) {
          f.driver = 550;
          f.driver_cuda = 12040;
        }) ==
        "rank 2 (beta, NVIDIA H100) has CUDA 13.x libraries and driver 550 (CUDA 12.4): "
        "install driver 580 or newer, or libraries for CUDA 12.x there");
  CHECK(refusal([](RankFacts& f) {
          f.driver = 0;
          f.driver_cuda = 12040;
        }) ==
        "rank 2 (beta, NVIDIA H100) has CUDA 13.x libraries and a driver for CUDA 12.4: "
        "install driver 580 or newer, or libraries for CUDA 12.x there");
  CHECK(refusal([](RankFacts& f) { f.driver_cuda = 0; }) ==
        "rank 2 (beta, NVIDIA H100) has no NVIDIA driver: install driver 525 or newer");
  CHECK(refusal([](RankFacts& f) {
          f.driver = 470;
          f.driver_cuda = 11040;
        }) == "rank 2 (beta, NVIDIA H100) has driver 470 (CUDA 11.4): install driver 525 or newer");
  CHECK(refusal([](RankFacts& f) { f.capability = 75; }) ==
        "rank 2 (beta, NVIDIA H100) has compute capability 7.5: this build needs 8.0 or newer; "
        "use another GPU, or device cpu");
  CHECK(refusal([](RankFacts& f) { f.nccl = 22705; }) ==
        "rank 2 (beta, NVIDIA H100) has NCCL 2.27.5, rank 0 (alpha) has 2.28.9: install the same "
        "version on all hosts (package libnccl2)");
  CHECK(refusal([](RankFacts& f) { f.nccl = 21805; }) ==
        "rank 2 (beta, NVIDIA H100) has NCCL 2.18.5: install 2.19.1 or a newer 2.x (package "
        "libnccl2)");
}

TEST_CASE("two ranks on one GPU are refused with both names; one UUID on two hosts is not") {
  CHECK(check_ranks({good(0), good(1), good(0)}).message() ==
        "ranks 0 and 2 are on one GPU (alpha, NVIDIA H100, GPU-0), which NCCL refuses: start at "
        "most one worker a GPU (--nproc-per-node gpu), or set parallel.backend to staged");
  CHECK(check_ranks({good(0), good(0, "beta/b111")}).ok());
  CHECK(check_ranks({good(0), good(0, "alpha/b222")}).ok());  // another boot: another machine
  // Containers of one machine.
  CHECK_FALSE(check_ranks({good(0), good(0, "pod-2/b007")}).ok());
}

TEST_CASE("the table of drivers") {
  CHECK(oldest_driver_for(13010) == 580);
  CHECK(oldest_driver_for(12000) == 525);
  CHECK(oldest_driver_for(11080) == 450);
  CHECK(oldest_driver_for(14000) == 0);
  CHECK(blas_names(12040).front() == "libcublasLt.so.12");
  CHECK(blas_names(13000).front() == "libcublasLt.so.13");
  CHECK(blas_names(0).size() == 2);
}

TEST_CASE("a rank's line reads back, and anything else is an error") {
  const RankFacts facts = good(7);
  const std::string line = facts_line(facts);
  CHECK(line.find('\n') == std::string::npos);
  REQUIRE(read_facts_line(line).ok());
  CHECK(*read_facts_line(line) == facts);
  RankFacts odd = facts;
  odd.device = "a\tb\nc";
  REQUIRE(read_facts_line(facts_line(odd)).ok());
  CHECK(read_facts_line(facts_line(odd))->device == "a b c");
  CHECK_FALSE(read_facts_line("").ok());
  CHECK_FALSE(read_facts_line(line + "\t1").ok());
  CHECK_FALSE(read_facts_line(line + "x").ok());
  Rng rng(1);
  for (int i = 0; i < 2000; ++i) {
    std::string broken = line;
    broken[rng.below(broken.size())] = static_cast<char>(rng.below(256));
    (void)read_facts_line(broken);
    (void)read_facts_line(line.substr(0, rng.below(line.size())));
  }
}

}  // namespace muster::runtime::cuda
