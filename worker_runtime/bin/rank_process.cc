// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bin/rank_process.h"

#include <algorithm>
#include <unistd.h>
#include <utility>

#include "worker_runtime/bin/command_line.h"
#include "worker_runtime/collectives/store_client.h"
#include "worker_runtime/collectives/tcp.h"
#include "worker_runtime/progress.h"

namespace muster::runtime {
namespace {

std::string message_of(const absl::Status& status) {
  return std::string(status.message());
}

}  // namespace

// The launcher's store, as the transport and as NCCL's meeting want it.
class RankProcess::Store : public BootstrapStore, public cuda::GenerationStore {
 public:
  explicit Store(StoreClient::Config config) : client_(std::move(config)) {}
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

RankProcess::RankProcess(LauncherFacts facts)
    : facts_(std::move(facts)),
      overseer_({.stop_file = facts_.stop_file,
                 .launched = facts_.launched,
                 .end = [this](int code, const std::string& why) { end_now(code, why); }}) {
  muster_progress_get();  // its magic is what tells the agent
}

RankProcess::~RankProcess() = default;

int RankProcess::connect(std::chrono::milliseconds patience) {
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
  store_ = std::make_unique<Store>(*store);
  TcpOptions options;
  options.rank = facts_.rank;
  options.size = facts_.world_size;
  options.generation = facts_.generation;
  options.route_to = facts_.master_addr;
  options.deadline = std::max(options.deadline, patience);
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

cuda::DeviceRequest RankProcess::device_request(cuda::DeviceWish wish) {
  // Both from the communicator's threads: first why it fails, as far as it is known, then that it
  // is over. The first thread is in a wait that nobody ends.
  const auto fails = [this](const cuda::RankEnd& why) {
    const ErrorReport report{why.exit_code, why.message, why.secondary, why.peer};
    {
      const std::lock_guard lock(failing_mutex_);
      failing_ = report;
    }
    write_error(report);
  };
  const auto ends = [](const cuda::RankEnd& why) {
    say(why.message);
    ::_exit(why.exit_code);
  };
  return {.wish = std::move(wish),
          .group = group_.get(),
          .local_rank = facts_.local_rank,
          .store = store_.get(),
          .stopping = [this] { return overseer_.stop_is_due(); },
          .failed = fails,
          .end = ends};
}

void RankProcess::note(const std::string& text) const {
  if (facts_.rank == 0) say(text);
}

void RankProcess::report(const ProgressReport& p) const {
  muster_report(p.step, p.loss, p.samples, p.checkpoint_step, p.state);
}

int RankProcess::failed(const ErrorReport& report) {
  overseer_.retire();
  tell(report);
  return report.exit_code;
}

ErrorReport RankProcess::report_of(const absl::Status& status) const {
  const bool peers = absl::IsUnavailable(status) || absl::IsFailedPrecondition(status) ||
                     absl::IsDeadlineExceeded(status);
  const int code = peers ? error_exit_code(status) : kExitDevice;
  return {code, message_of(status), code == kExitPeerLost, group_->lost_peer()};
}

void RankProcess::write_error(const ErrorReport& report) const {
  const absl::Status written = write_error_file(facts_.error_file, report);
  if (!written.ok()) say(message_of(written));
}

void RankProcess::tell(const ErrorReport& report) const {
  say(report.message);
  write_error(report);
}

// From the overseer's thread: the first thread may be blocked for ever, and is left there. A job
// that comes down because this rank's communicator failed changes nothing about why it did.
void RankProcess::end_now(int code, const std::string& why) const {
  ErrorReport report{code, why, code == kExitPeerLost, -1};
  {
    const std::lock_guard lock(failing_mutex_);
    if (failing_) report = *failing_;
  }
  tell(report);
  ::_exit(report.exit_code);
}

}  // namespace muster::runtime
