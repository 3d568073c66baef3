// SPDX-License-Identifier: Apache-2.0
//
// Every kernel against the host's executor on the same inputs, with tails and with whole packs.
#include "tests/gpu/context.h"
#include "tests/gpu/trial_run.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

const TrialSize kSizes[] = {
    // Nothing is a multiple of anything; more columns of logits than a block takes at a time.
    {.name = "tails",
     .batch = 3,
     .time = 70,
     .width = 101,
     .heads = 2,
     .vocabulary = 2503,
     .plain_head = 20},
    // Sixteen bytes an access; more columns than a block.
    {.name = "packs",
     .batch = 2,
     .time = 64,
     .width = 520,
     .heads = 3,
     .vocabulary = 4096,
     .plain_head = 64},
    // More tiles of keys than attention has buffers for: each is filled again while another is
    // read.
    {.name = "tiles",
     .batch = 1,
     .time = 330,
     .width = 40,
     .heads = 2,
     .vocabulary = 72,
     .plain_head = 40,
     .only_on_devices = true}};

absl::StatusOr<std::string> compare(const Trial& trial, Device& device, Stream& stream) {
  auto prepared = DeviceTrial::prepare(trial, device, stream);
  if (!prepared.ok()) return prepared.status();
  absl::Status status = prepared->launch(stream);
  if (status.ok()) status = stream.synchronize();
  if (!status.ok()) return status;
  auto got = prepared->fetch(stream);
  if (!got.ok()) return got.status();
  return difference(trial, *got, run_trial_on_host(trial));
}

}  // namespace

absl::Status check_kernels(const Context& context) {
  auto opened = open_device(context);
  if (!opened.ok()) return opened.status();
  auto stream = opened->device->make_stream();
  if (!stream.ok()) return stream.status();
  bool skipping = !context.after.empty();
  for (const KernelCase& one : all_cases()) {
    for (const TrialSize& size : kSizes) {
      if (context.on_fakes && size.only_on_devices) continue;
      const std::string what = one.kernel + ", " + size.name;
      if (skipping) {
        skipping = what != context.after;
        continue;
      }
      context.report->at(what);
      const auto text = compare(one.make(size), *opened->device, **stream);
      // A device that fails once fails for this process: the next one goes on behind this.
      if (!text.ok()) {
        context.report->check(what, false, text.status().ToString());
        std::quick_exit(3);
      }
      context.report->check(what, text->empty(), *text);
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::runtime::cuda::gpu_check
