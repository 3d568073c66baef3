// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bin/train_program.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <signal.h>
#include <stdlib.h>
#include <string>
#include <sys/random.h>
#include <unistd.h>

#include "proto/base/check.h"
#include "proto/process/standard_descriptors.h"
#include "worker_runtime/bin/train_flags.h"
#include "worker_runtime/collectives/local.h"
#include "worker_runtime/collectives/store_client.h"
#include "worker_runtime/collectives/tcp.h"
#include "worker_runtime/cpu/product_isa.h"
#include "worker_runtime/cuda/engine/device_setup.h"
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

// The launcher's store, as the transport and as NCCL's meeting want it.
class LauncherStore : public BootstrapStore, public cuda::GenerationStore {
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
  absl::StatusOr<std::string> get(const std::string& key, Duration wait) override {
    return client_.get(key, wait);
  }
  absl::StatusOr<std::int64_t> add(const std::string& key, std::int64_t delta) override {
    return client_.add(key, delta);
  }

 private:
  StoreClient client_;
};

// One rank's process.
class Program {
 public:
  Program(LauncherFacts facts, const cuda::DeviceLibraries& libraries)
      : facts_(std::move(facts)),
        libraries_(libraries),
        overseer_({.stop_file = facts_.stop_file,
                   .launched = facts_.launched,
                   .end = [this](int code, const std::string& why) { end_now(code, why); }}) {}

  int run(const TrainFlags& flags) {
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

    auto setup = set_up(config);
    if (!setup.ok()) return failed(report_of(setup.status()));
    for (const std::string& text : setup->notes)
      note(text);

    const std::string nonce = random_nonce();
    TrainRuntime runtime(*group_);
    runtime.run = facts_.run.empty() ? "alone-" + nonce : facts_.run;
    runtime.nonce = nonce;
    runtime.build = build_facts();
    if (setup->on_device) runtime.build.isa = setup->signature;
    runtime.make_engine = setup->make_engine;
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

  absl::StatusOr<cuda::DeviceSetup> set_up(const TrainConfig& config) {
    overseer_.collective_begins();
    auto setup = cuda::set_up_device(
        libraries_, {.config = config,
                     .group = *group_,
                     .local_rank = facts_.local_rank,
                     .store = store_.get(),
                     .failed = [this](const cuda::RankEnd& end) { device_failed(end); },
                     .end = [this](const cuda::RankEnd& end) { device_end(end); }});
    overseer_.collective_ends();
    return setup;
  }

  // Of what went wrong before training: a peer, or this rank's device.
  ErrorReport report_of(const absl::Status& status) const {
    const bool peers = absl::IsUnavailable(status) || absl::IsFailedPrecondition(status) ||
                       absl::IsDeadlineExceeded(status);
    const int code = peers ? error_exit_code(status) : kExitDevice;
    return {code, message_of(status), code == kExitPeerLost, group_->lost_peer()};
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
    store_ = std::make_unique<LauncherStore>(*store);
    TcpOptions options;
    options.rank = facts_.rank;
    options.size = facts_.world_size;
    options.generation = facts_.generation;
    options.route_to = facts_.master_addr;
    // Ranks wait for rank 0's saves in a collective: a slow one is the storage's fault, not theirs.
    options.deadline = std::max<std::chrono::milliseconds>(
        options.deadline, std::chrono::seconds(config.checkpoint.timeout_s + 60));
    overseer_.collective_begins();
    auto group = connect_tcp(options, *store_);
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

  // From the communicator's threads: first why it fails, as far as it is known, then that it is
  // over. The training thread is in a wait that nobody ends.
  void device_failed(const cuda::RankEnd& end) {
    const ErrorReport report{end.exit_code, end.message, end.secondary, end.peer};
    const absl::Status written = write_error_file(facts_.error_file, report);
    if (!written.ok()) say(message_of(written));
  }
  void device_end(const cuda::RankEnd& end) {
    say(end.message);
    ::_exit(end.exit_code);
  }

  LauncherFacts facts_;
  const cuda::DeviceLibraries& libraries_;
  ProcessOverseer overseer_;
  std::unique_ptr<LauncherStore> store_;  // with several ranks; outlives what uses it
  std::unique_ptr<LocalGroup> local_;
  std::unique_ptr<Collectives> group_;
};

int run_checked(int argc, char** argv, const cuda::DeviceLibraries& libraries) {
  TrainFlags flags;
  const int ended = parse_train_flags(argc, argv, flags);
  if (ended >= 0) return ended;
  ::signal(SIGPIPE, SIG_IGN);  // gloo writes to sockets without MSG_NOSIGNAL
  const auto facts = launcher_facts(process_environment());
  if (!facts.ok()) {
    say(std::string(facts.status().message()));
    return kExitConfiguration;
  }
  Program program(*facts, libraries);
  const int code = program.run(flags);
  // After a failure nobody answers on the other side: closing connections in order could wait.
  if (code != kExitDone && code != kExitStopped) ::_exit(code);
  return code;
}

}  // namespace

int run_train_program(int argc, char** argv, const cuda::DeviceLibraries& libraries) {
  try {
    return run_checked(argc, argv, libraries);
  } catch (const std::bad_alloc&) {
    say("out of memory");
  } catch (const std::exception& error) {
    say(std::string("internal error: ") + error.what());
  }
  return kExitInternal;
}

}  // namespace muster::runtime
