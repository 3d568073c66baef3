// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bin/train_flags.h"

#include <CLI/CLI.hpp>

#include "worker_runtime/bin/bench_flags.h"
#include "worker_runtime/bin/command_line.h"
#include "worker_runtime/train/trainer.h"

namespace muster::runtime {
namespace {

constexpr const char* kHelpEnd = R"(
The configuration is one JSON document. DeepSpeed's keys mean what they mean
there:
  train_batch_size, train_micro_batch_size_per_gpu, gradient_accumulation_steps,
  gradient_clipping (1.0), bf16{enabled},
  fp16{enabled, loss_scale, initial_scale_power, …}, zero_optimization{stage: 0},
  optimizer{type: AdamW, params{lr, betas, eps, weight_decay}},
  scheduler{type: WarmupLR | WarmupDecayLR | WarmupCosineLR, params{…}}
and these are ours:
  model{n_layer, n_head, n_embd, n_ctx, vocab_size}
  data{path, validation (0.05)}      eval{every_steps, batches}
  steps      seed      device (auto | cpu | cuda)      max_bad_steps (8)
  grad_scaler{init_scale, growth_factor, backoff_factor, growth_interval}
  parallel{deterministic, wire_dtype, bucket_mb (32), first_bucket_mb (4),
    backend (auto | nccl | staged | tcp)}
    staged: from a device over host memory, for ranks that share one
  checkpoint{dir, every_steps, keep (3), timeout (600)}

Example, one process, from a source tree:
  muster-train --config configs/gpt-nano.json --set steps=50 \
    --set checkpoint.dir=/tmp/nano
and two, restarted where they stopped if one dies:
  muster run --standalone --nproc-per-node 2 --max-restarts 3 -- \
    muster-train --config configs/gpt-tiny.json --set checkpoint.dir=/tmp/tiny

To check a cluster first, how fast it adds gradients and whether the sums are
right:
  muster run --standalone --nproc-per-node 2 -- muster-train bench-collectives
(muster-train bench-collectives --help)

Exit codes: 0 done, 2 configuration, 70 internal, 80 numerics (loss scale at its
floor, or too many steps without a finite gradient), 81 another rank is gone, 82
ranks disagree, 83 a rank did not answer in time, 84 checkpoint storage, 85
device, 143 stopped on request, where there is a checkpoint.dir after a saved
checkpoint.
)";

}  // namespace

int parse_train_flags(const std::vector<std::string>& arguments, TrainFlags& flags) {
  CLI::App app("Trains a GPT on text: one rank of a data-parallel run, or a run of its own.",
               "muster-train");
  app.add_option("--config", flags.config, "the configuration, a JSON file (required)")
      ->type_name("FILE")
      ->take_last();
  app.add_option("--set", flags.settings,
                 "over the file's, as in optimizer.params.lr=1e-3; again for more")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--metrics", flags.metrics,
                 "append the lines of standard output to this file too (rank 0)")
      ->type_name("FILE")
      ->take_last();
  app.add_option("--resume", flags.resume,
                 "where to start; auto: the newest complete checkpoint in checkpoint.dir, "
                 "none: the beginning. Restarts of one run always go on from its own")
      ->type_name("auto|none|PATH")
      ->take_last()
      ->capture_default_str();
  app.footer(kHelpEnd);
  const int ended = parse_command_line(app, arguments, {kBenchCommand});
  if (ended >= 0) return ended;
  if (!flags.config.empty()) return -1;
  say("--config FILE is missing (see muster-train --help)");
  return kExitConfiguration;
}

}  // namespace muster::runtime
