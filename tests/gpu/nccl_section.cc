// SPDX-License-Identifier: Apache-2.0
//
// NCCL with one rank, which is as much of it as one device can show: a generation that meets,
// trains and is aborted, the next one that meets again and goes on, a third that closes in order;
// and the bits of training without it.
#include <filesystem>
#include <string>

#include "tests/gpu/directory_store.h"
#include "tests/gpu/training.h"
#include "worker_runtime/collectives/local.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

constexpr int kSteps = 3;  // of a generation
constexpr int kGenerations = 3;

struct Bench {
  Opened opened;
  NcclApi nccl;
  DirectoryStore* store;
};

absl::StatusOr<std::unique_ptr<Communicator>> connect(const Bench& bench, std::int64_t generation) {
  const DeviceFacts& device = bench.opened.device->facts();
  CommunicatorOptions options;
  options.generation = generation;
  options.facts.host = "this";
  options.facts.device = device.name;
  options.facts.uuid = device.uuid;
  options.facts.pci_bus = device.pci_bus;
  options.facts.capability = device.capability_major * 10 + device.capability_minor;
  options.facts.driver_cuda = device.driver_version;
  options.facts.nccl = bench.nccl.version;
  return Communicator::connect(bench.nccl, bench.opened.device, *bench.store, options);
}

// Some steps over NCCL from `state`, which moves on. Unless it is the last, the communicator is
// left as a dying rank leaves it: aborted, not closed.
absl::Status run_generation(const Bench& bench, const TrainingPlan& plan, std::int64_t generation,
                            TrainingState* state) {
  LocalGroup group(1, generation);
  const auto alone = group.member(0);
  const auto exchange =
      [&](const ExchangeRoom& room) -> absl::StatusOr<std::unique_ptr<GradientExchange>> {
    auto communicator = connect(bench, generation);
    if (!communicator.ok()) return communicator.status();
    return make_nccl_exchange(bench.opened.device, *std::move(communicator), WireType::kF32, room);
  };
  auto training = Training::start(plan, bench.opened, *alone, exchange);
  if (!training.ok()) return training.status();
  absl::Status status;
  if (generation > 0) status = (*training)->resume(*state);
  for (int i = 0; status.ok() && i < kSteps; ++i)
    status = (*training)->step().status();
  if (!status.ok()) return status;
  auto reached = (*training)->state();
  if (!reached.ok()) return reached.status();
  *state = *std::move(reached);
  return generation + 1 == kGenerations ? (*training)->close() : absl::OkStatus();
}

absl::StatusOr<std::uint64_t> without_nccl(const Bench& bench, const TrainingPlan& plan) {
  LocalGroup group(1, 0);
  const auto alone = group.member(0);
  auto training = Training::start(plan, bench.opened, *alone,
                                  [](const ExchangeRoom&) { return make_no_exchange(); });
  if (!training.ok()) return training.status();
  for (int i = 0; i < kSteps * kGenerations; ++i) {
    const auto loss = (*training)->step();
    if (!loss.ok()) return loss.status();
  }
  const auto state = (*training)->state();
  if (!state.ok()) return state.status();
  return digest(*state);
}

}  // namespace

absl::Status check_nccl(const Context& context) {
  auto nccl = context.libraries.nccl();
  if (!nccl.ok()) return nccl.status();
  auto opened = open_device(context);
  if (!opened.ok()) return opened.status();
  for (const Precision precision : {Precision::kBf16, Precision::kF16}) {
    const std::string name = std::string(precision_name(precision)) + ": ";
    // Of a job of its own: an id serves once.
    const std::string folder = context.folder + "/" + precision_name(precision);
    std::filesystem::create_directory(folder);
    DirectoryStore store(folder);
    const Bench bench{*opened, *nccl, &store};
    const TrainingPlan plan = small_plan(context.on_fakes, precision);
    TrainingState state;
    for (int generation = 0; generation < kGenerations; ++generation) {
      const absl::Status status = run_generation(bench, plan, generation, &state);
      context.report->check(
          name + "generation " + std::to_string(generation) +
              (generation + 1 < kGenerations ? " trains and is aborted" : " trains and closes"),
          status.ok(), status.ToString());
      if (!status.ok()) return absl::OkStatus();
    }
    const auto expected = without_nccl(bench, plan);
    if (!expected.ok()) return expected.status();
    context.report->check(name + "the bits of training without NCCL", digest(state) == *expected);
  }
  return absl::OkStatus();
}

}  // namespace muster::runtime::cuda::gpu_check
