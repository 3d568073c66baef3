// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bin/train_program.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <new>
#include <signal.h>
#include <string>
#include <sys/random.h>
#include <unistd.h>
#include <vector>

#include "proto/base/check.h"
#include "worker_runtime/bin/bench_collectives.h"
#include "worker_runtime/bin/bench_flags.h"
#include "worker_runtime/bin/command_line.h"
#include "worker_runtime/bin/rank_process.h"
#include "worker_runtime/bin/train_flags.h"
#include "worker_runtime/cpu/product_isa.h"
#include "worker_runtime/cuda/engine/device_setup.h"
#include "worker_runtime/data/digest.h"
#include "worker_runtime/model/gpt.h"
#include "worker_runtime/train/agreement.h"
#include "worker_runtime/train/config.h"
#include "worker_runtime/train/json_reader.h"
#include "worker_runtime/train/output.h"
#include "worker_runtime/train/trainer.h"

namespace muster::runtime {
namespace {

std::string message_of(const absl::Status& status) {
  return std::string(status.message());
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

// One rank's training.
class Program {
 public:
  Program(RankProcess& process, const cuda::DeviceLibraries& libraries)
      : process_(process), facts_(process.facts()), libraries_(libraries) {}

  int run(const TrainFlags& flags) {
    auto parsed = load_config(flags.config, flags.settings);
    if (!parsed.ok()) return process_.failed({kExitConfiguration, message_of(parsed.status())});
    const TrainConfig& config = parsed->config;
    const std::chrono::seconds storage(config.checkpoint.timeout_s);
    process_.overseer().set_storage_timeout(storage);
    const auto note = [this](const std::string& text) { process_.note(text); };
    auto output = LineOutput::open(facts_.rank == 0 ? flags.metrics : "", note);
    if (!output.ok()) return process_.failed({kExitConfiguration, message_of(output.status())});
    // Ranks wait for rank 0's saves in a collective: a slow one is the storage's fault, not theirs.
    const int connected = process_.connect(storage + std::chrono::seconds(60));
    if (connected != 0) return connected;
    Collectives& group = process_.group();
    for (const std::string& text : parsed->notes)
      note(text);
    if (config.parallel.deterministic && group.size() > 1) {
      const int settled = settle_products();
      if (settled != 0) return settled;
    }

    auto setup = set_up(config);
    if (!setup.ok()) return process_.failed(process_.report_of(setup.status()));

    const std::string nonce = random_nonce();
    TrainRuntime runtime(group);
    runtime.run = facts_.run.empty() ? "alone-" + nonce : facts_.run;
    runtime.nonce = nonce;
    runtime.build = build_facts();
    if (setup->on_device) runtime.build.isa = setup->signature;
    // What is computed on is said when it comes to that: a run that is refused has one line.
    runtime.make_engine = [&](const EngineRequest& request) {
      for (const std::string& text : setup->notes)
        note(text);
      return setup->make_engine(request);
    };
    runtime.resume = resume_choice(flags.resume);
    runtime.overseer = &process_.overseer();
    runtime.line = [&output](const std::string& line) { output->write(line); };
    runtime.note = note;
    runtime.progress = [this](const ProgressReport& progress) { process_.report(progress); };
    const TrainResult result = train(config, runtime);
    process_.overseer().retire();
    if (result.exit_code == kExitDone || result.exit_code == kExitStopped) return result.exit_code;
    return process_.failed(
        {result.exit_code, result.message, result.exit_code == kExitPeerLost, result.peer});
  }

 private:
  absl::StatusOr<cuda::DeviceSetup> set_up(const TrainConfig& config) {
    process_.overseer().collective_begins();
    auto setup = cuda::set_up_device(libraries_, process_.device_request(cuda::wish_of(config)));
    process_.overseer().collective_ends();
    return setup;
  }

  // Equal bits on all ranks need products of one instruction set: the largest that all have.
  int settle_products() {
    process_.overseer().collective_begins();
    const auto bits = exchange_bits(process_.group(), product_isa());
    process_.overseer().collective_ends();
    if (!bits.ok()) {
      return process_.failed(
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
      return process_.failed(
          {kExitConfiguration,
           "parallel.deterministic: the ranks have no instruction set in common"});
    }
    process_.note("ranks have different instruction sets: matrix products use " +
                  product_isa_name(isa) + " on all of them (parallel.deterministic)");
    return 0;
  }

  RankProcess& process_;
  const LauncherFacts& facts_;
  const cuda::DeviceLibraries& libraries_;
};

// Runs `work` as this process's rank.
int as_rank(const std::function<int(RankProcess&)>& work) {
  ::signal(SIGPIPE, SIG_IGN);  // gloo writes to sockets without MSG_NOSIGNAL
  const auto facts = launcher_facts(process_environment());
  if (!facts.ok()) {
    say(message_of(facts.status()));
    return kExitConfiguration;
  }
  RankProcess process(*facts);
  const int code = work(process);
  // After a failure nobody answers on the other side: closing connections in order could wait.
  if (code != kExitDone && code != kExitStopped) ::_exit(code);
  return code;
}

int run_checked(const std::vector<std::string>& arguments, const cuda::DeviceLibraries& libraries) {
  if (!arguments.empty() && arguments.front() == kBenchCommand) {
    BenchOptions options;
    const int ended = parse_bench_flags({arguments.begin() + 1, arguments.end()}, options);
    if (ended >= 0) return ended;
    return as_rank(
        [&](RankProcess& process) { return run_bench_collectives(process, libraries, options); });
  }
  TrainFlags flags;
  const int ended = parse_train_flags(arguments, flags);
  if (ended >= 0) return ended;
  return as_rank([&](RankProcess& process) { return Program(process, libraries).run(flags); });
}

}  // namespace

int run_train_program(int argc, char** argv, const cuda::DeviceLibraries& libraries) {
  try {
    return run_checked({argv + std::min(argc, 1), argv + argc}, libraries);
  } catch (const std::bad_alloc&) {
    say("out of memory");
  } catch (const std::exception& error) {
    say(std::string("internal error: ") + error.what());
  }
  return kExitInternal;
}

}  // namespace muster::runtime
