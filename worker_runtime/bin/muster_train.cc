// SPDX-License-Identifier: Apache-2.0
//
// muster-train: one rank of a training run as a process. Flags and environment in, exit code out;
// everything between is worker_runtime/train.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <signal.h>
#include <stdlib.h>
#include <string>
#include <sys/random.h>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>

#include "proto/base/check.h"
#include "proto/base/nearest.h"
#include "proto/process/standard_descriptors.h"
#include "worker_runtime/collectives/local.h"
#include "worker_runtime/collectives/store_client.h"
#include "worker_runtime/collectives/tcp.h"
#include "worker_runtime/cpu/product_isa.h"
#include "worker_runtime/data/digest.h"
#include "worker_runtime/model/gpt.h"
#include "worker_runtime/progress.h"
#include "worker_runtime/train/agreement.h"
#include "worker_runtime/train/config.h"
#include "worker_runtime/train/environment.h"
#include "worker_runtime/train/error_file.h"
#include "worker_runtime/train/json_reader.h"
#include "worker_runtime/train/output.h"
#include "worker_runtime/train/overseer.h"
#include "worker_runtime/train/trainer.h"

namespace muster::runtime {
namespace {

constexpr const char* kHelpEnd = R"(
The configuration is one JSON document. DeepSpeed's keys mean what they mean there:
  train_batch_size, train_micro_batch_size_per_gpu, gradient_accumulation_steps,
  gradient_clipping (1.0), fp16{enabled, loss_scale, initial_scale_power, …}, bf16{enabled},
  zero_optimization{stage: 0}, optimizer{type: AdamW, params{lr, betas, eps, weight_decay}},
  scheduler{type: WarmupLR | WarmupDecayLR | WarmupCosineLR, params{…}}
and these are ours:
  model{n_layer, n_head, n_embd, n_ctx, vocab_size}      data{path, validation (0.05)}
  steps      seed      device (auto | cpu)      max_bad_steps (8)
  grad_scaler{init_scale, growth_factor, backoff_factor, growth_interval}   torch's scaler
  parallel{deterministic, wire_dtype, backend}
  checkpoint{dir, every_steps, keep (3), timeout (600)}      eval{every_steps, batches}

Example, one process, from a source tree:
  muster-train --config configs/gpt-nano.json --set steps=50 --set checkpoint.dir=/tmp/nano
and two, restarted where they stopped if one dies:
  muster run --standalone --nproc-per-node 2 --max-restarts 3 -- \
    muster-train --config configs/gpt-tiny.json --set checkpoint.dir=/tmp/tiny

Exit codes: 0 done, 2 configuration, 70 internal, 80 numerics (loss scale at its floor, or too many
steps without a finite gradient), 81 another rank is gone, 82 ranks disagree, 83 a rank did not
answer in time, 84 checkpoint storage, 85 device, 143 stopped on request, where there is a
checkpoint.dir after a saved checkpoint.
)";

struct Flags {
  std::string config;
  std::vector<std::string> settings;
  std::string metrics;
  std::string resume = "auto";
};

void say(const std::string& text) {
  const std::string line = "muster-train: " + text + "\n";
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

// Dashes and underscores are the same in a flag's name.
std::vector<std::string> dashed(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    if (!argument.starts_with("--")) continue;
    const std::size_t end = std::min(argument.find('='), argument.size());
    std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  }
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  return arguments;
}

// The first argument that is none of ours, and which of ours it may have been.
std::string unknown_argument(const CLI::App& app) {
  const std::string first = app.remaining().front();
  const std::string name = first.substr(0, first.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options())
    known.push_back(option->get_name());
  const std::string near = nearest(name, known);
  return near.empty() ? name : name + "; did you mean " + near + "?";
}

// -1: go on; else the exit code.
int parse_flags(int argc, char** argv, Flags& flags) {
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
  app.set_version_flag("--version", "muster-train " MUSTER_VERSION);
  app.footer(kHelpEnd);
  try {
    app.parse(dashed(argc, argv));
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::CallForVersion&) {
    std::puts("muster-train " MUSTER_VERSION);
    return 0;
  } catch (const CLI::ExtrasError&) {
    say("unknown argument " + unknown_argument(app) + " (see muster-train --help)");
    return kExitConfiguration;
  } catch (const CLI::ArgumentMismatch& error) {
    // "--config: 1 required TEXT missing": the flag is all that people need of it.
    const std::string text = error.what();
    say(text.substr(0, text.find(':')) + " needs a value (see muster-train --help)");
    return kExitConfiguration;
  } catch (const CLI::ParseError& error) {
    say(std::string(error.what()) + " (see muster-train --help)");
    return kExitConfiguration;
  }
  if (!flags.config.empty()) return -1;
  say("--config FILE is missing (see muster-train --help)");
  return kExitConfiguration;
}

std::string random_nonce() {
  std::uint64_t number = 0;
  MUSTER_CHECK(::getrandom(&number, sizeof(number), 0) == sizeof(number));
  return hex64(number);
}

ResumeChoice resume_choice(const std::string& text) {
  if (text == "auto") return {};
  if (text == "none") return {ResumeChoice::Kind::kNone, {}};
  return {ResumeChoice::Kind::kPath, text};
}

BuildFacts build_facts() {
  return {MUSTER_VERSION, std::string("g++ ") + __VERSION__, gpt_signature()};
}

// The launcher's store, as the transport wants it.
class LauncherStore : public BootstrapStore {
 public:
  explicit LauncherStore(StoreClient::Config config) : client_(std::move(config)) {}
  absl::Status set(const std::string& key, const std::string& value) override {
    return client_.set(key, value);
  }
  absl::StatusOr<std::string> get(const std::string& key, std::chrono::milliseconds wait) override {
    auto value = client_.get(key, wait);
    if (!absl::IsNotFound(value.status())) return value;
    return absl::DeadlineExceededError(std::string(value.status().message()));
  }

 private:
  StoreClient client_;
};

// One rank's process.
class Program {
 public:
  explicit Program(LauncherFacts facts)
      : facts_(std::move(facts)),
        overseer_({.stop_file = facts_.stop_file,
                   .launched = facts_.launched,
                   .end = [this](int code, const std::string& why) { end_now(code, why); }}) {}

  int run(const Flags& flags) {
    muster_progress_get();  // its magic tells the agent that this worker polls the stop file
    auto parsed = load_config(flags.config, flags.settings);
    if (!parsed.ok()) return failed({kExitConfiguration, message_of(parsed.status())});
    const TrainConfig& config = parsed->config;
    overseer_.set_storage_timeout(std::chrono::seconds(config.checkpoint.timeout_s));
    const auto note = [this](const std::string& text) {
      if (facts_.rank == 0) say(text);
    };
    auto output = LineOutput::open(facts_.rank == 0 ? flags.metrics : "", note);
    if (!output.ok()) return failed({kExitConfiguration, message_of(output.status())});
    const int connected = connect(config);
    if (connected != 0) return connected;
    for (const std::string& text : parsed->notes)
      note(text);
    if (config.parallel.deterministic && group_->size() > 1) {
      const int settled = settle_products();
      if (settled != 0) return settled;
    }

    const std::string nonce = random_nonce();
    TrainRuntime runtime(*group_);
    runtime.run = facts_.run.empty() ? "alone-" + nonce : facts_.run;
    runtime.nonce = nonce;
    runtime.build = build_facts();
    runtime.resume = resume_choice(flags.resume);
    runtime.overseer = &overseer_;
    runtime.line = [&output](const std::string& line) { output->write(line); };
    runtime.note = note;
    runtime.progress = [](const ProgressReport& p) {
      muster_report(p.step, p.loss, p.samples, p.checkpoint_step, p.state);
    };
    const TrainResult result = train(config, runtime);
    overseer_.retire();
    if (result.exit_code == kExitDone || result.exit_code == kExitStopped) return result.exit_code;
    return failed(
        {result.exit_code, result.message, result.exit_code == kExitPeerLost, result.peer});
  }

 private:
  static std::string message_of(const absl::Status& status) {
    return std::string(status.message());
  }

  int connect(const TrainConfig& config) {
    if (facts_.world_size == 1) {
      local_ = std::make_unique<LocalGroup>(1, facts_.generation);
      group_ = local_->member(0);
      return 0;
    }
    const auto store = StoreClient::config_from_environment();
    if (!store.ok()) {
      const std::string size = std::to_string(facts_.world_size);
      return failed({kExitConfiguration,
                     "WORLD_SIZE is " + size + ", but " + message_of(store.status()) +
                         ": several ranks meet through the store of `muster run`; start them as "
                         "`muster run --nproc-per-node " +
                         size + " -- muster-train ...`, or one alone without RANK and WORLD_SIZE"});
    }
    LauncherStore bootstrap(*store);
    TcpOptions options;
    options.rank = facts_.rank;
    options.size = facts_.world_size;
    options.generation = facts_.generation;
    options.route_to = facts_.master_addr;
    // Ranks wait for rank 0's saves in a collective: a slow one is the storage's fault, not theirs.
    options.deadline = std::max<std::chrono::milliseconds>(
        options.deadline, std::chrono::seconds(config.checkpoint.timeout_s + 60));
    overseer_.collective_begins();
    auto group = connect_tcp(options, bootstrap);
    overseer_.collective_ends();
    if (!group.ok()) {
      const bool theirs = absl::IsUnavailable(group.status()) || absl::IsAborted(group.status()) ||
                          absl::IsDeadlineExceeded(group.status());
      return failed({theirs ? kExitPeerLost : kExitConfiguration,
                     "cannot connect to the other ranks: " + message_of(group.status()), theirs});
    }
    group_ = *std::move(group);
    return 0;
  }

  // Equal bits on all ranks need products of one instruction set: the largest that all have.
  int settle_products() {
    overseer_.collective_begins();
    const auto bits = exchange_bits(*group_, product_isa());
    overseer_.collective_ends();
    if (!bits.ok()) {
      return failed(
          {kExitPeerLost, "cannot compare instruction sets: " + message_of(bits.status()), true});
    }
    ProductIsa common = ~ProductIsa{0};
    for (const ProductIsa one : *bits)
      common &= one;
    if (std::all_of(bits->begin(), bits->end(), [&](ProductIsa one) { return one == common; })) {
      return 0;
    }
    const ProductIsa isa = largest_within(common);
    if (isa == 0 || !limit_products(isa)) {
      return failed({kExitConfiguration,
                     "parallel.deterministic: the ranks have no instruction set in common"});
    }
    if (facts_.rank == 0) {
      say("ranks have different instruction sets: matrix products use " + product_isa_name(isa) +
          " on all of them (parallel.deterministic)");
    }
    return 0;
  }

  int failed(const ErrorReport& report) {
    overseer_.retire();
    tell(report);
    return report.exit_code;
  }

  void tell(const ErrorReport& report) {
    say(report.message);
    const absl::Status written = write_error_file(facts_.error_file, report);
    if (!written.ok()) say(message_of(written));
  }

  // From the overseer's thread: the training thread may be blocked for ever, and is left there.
  void end_now(int code, const std::string& why) {
    tell({code, why, code == kExitPeerLost, -1});
    ::_exit(code);
  }

  LauncherFacts facts_;
  ProcessOverseer overseer_;
  std::unique_ptr<LocalGroup> local_;
  std::unique_ptr<Collectives> group_;
};

int run_program(int argc, char** argv) {
  Flags flags;
  const int ended = parse_flags(argc, argv, flags);
  if (ended >= 0) return ended;
  ::signal(SIGPIPE, SIG_IGN);  // gloo writes to sockets without MSG_NOSIGNAL
  const auto facts = launcher_facts(process_environment());
  if (!facts.ok()) {
    say(std::string(facts.status().message()));
    return kExitConfiguration;
  }
  Program program(*facts);
  const int code = program.run(flags);
  // After a failure nobody answers on the other side: closing connections in order could wait.
  if (code != kExitDone && code != kExitStopped) ::_exit(code);
  return code;
}

[[gnu::constructor(kFirstOfAll)]] void hold() {
  hold_standard_descriptors();
}

}  // namespace
}  // namespace muster::runtime

int main(int argc, char** argv) {
  try {
    return muster::runtime::run_program(argc, argv);
  } catch (const std::bad_alloc&) {
    muster::runtime::say("out of memory");
  } catch (const std::exception& error) {
    muster::runtime::say(std::string("internal error: ") + error.what());
  }
  return muster::runtime::kExitInternal;
}
