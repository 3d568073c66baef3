// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bin/bench_collectives.h"

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "worker_runtime/bench/report.h"
#include "worker_runtime/bench/target.h"
#include "worker_runtime/collectives/ops.h"
#include "worker_runtime/train/output.h"

namespace muster::runtime {
namespace {

// For a launcher to stop this rank after another has failed.
constexpr std::chrono::seconds kStopPatience(5);

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

std::string place(const cuda::RankDevice& rank) {
  if (rank.device == nullptr) return host_name() + ", CPU";
  const cuda::DeviceFacts& device = rank.device->facts();
  return host_name() + ", device " + std::to_string(device.ordinal) + ", " + device.name +
         (device.pci_bus.empty() ? "" : " at " + device.pci_bus);
}

const char* backend_text(const cuda::RankDevice& rank, int ranks) {
  if (ranks == 1) return "none";
  if (rank.device == nullptr) return "tcp";
  return rank.backend == cuda::DeviceBackend::kNccl ? "nccl" : "staged";
}

class Bench {
 public:
  Bench(RankProcess& process, const cuda::DeviceLibraries& libraries, const BenchOptions& options)
      : process_(process), libraries_(libraries), options_(options) {}

  int run() {
    const auto note = [this](const std::string& text) { process_.note(text); };
    auto output = LineOutput::open("", note);
    if (!output.ok()) return process_.failed({kExitConfiguration, words(output.status())});
    const int connected = process_.connect();
    if (connected != 0) return connected;
    const int agreed = compare_options();
    if (agreed != 0) return agreed;

    const cuda::DeviceRequest request = process_.device_request(options_.wish);
    Overseer& overseer = process_.overseer();
    overseer.collective_begins();
    const auto rank = cuda::open_rank_device(libraries_, request);
    overseer.collective_ends();
    if (!rank.ok()) return process_.failed(process_.report_of(rank.status()));
    on_device_ = rank->device != nullptr;
    for (const std::string& text : rank->notes)
      note(text);
    auto places = gather(place(*rank));
    if (!places.ok()) return failed(places.status());
    facts_ = {options_.text, backend_text(*rank, process_.group().size()), *std::move(places)};

    const Pattern pattern(process_.group().rank(), process_.group().size(), options_.sweep.type);
    overseer.collective_begins();
    const auto target = make_target(*rank, request, pattern);
    overseer.collective_ends();
    if (!target.ok()) return failed(target.status());
    return sweep(**target, *output);
  }

 private:
  static std::string words(const absl::Status& status) { return std::string(status.message()); }

  // Once it is known what the ranks add on.
  int failed(const absl::Status& status) {
    ErrorReport report = process_.report_of(status);
    if (report.exit_code == kExitDevice && !on_device_) report.exit_code = kExitInternal;
    return process_.failed(report);
  }

  // Every rank's text, in rank order.
  absl::StatusOr<std::vector<std::string>> gather(const std::string& mine) {
    process_.overseer().collective_begins();
    const auto lines = all_gather(process_.group(), std::as_bytes(std::span(mine)));
    process_.overseer().collective_ends();
    if (!lines.ok()) return lines.status();
    std::vector<std::string> texts;
    for (const std::vector<std::byte>& line : *lines)
      texts.emplace_back(reinterpret_cast<const char*>(line.data()), line.size());
    return texts;
  }

  int compare_options() {
    const auto texts = gather(options_.text);
    if (!texts.ok()) return failed(texts.status());
    for (std::size_t rank = 1; rank < texts->size(); ++rank) {
      if ((*texts)[rank] == texts->front()) continue;
      return process_.failed({kExitConfiguration, "rank " + std::to_string(rank) +
                                                      " and rank 0 have different options: " +
                                                      (*texts)[rank] + " / " + texts->front()});
    }
    return 0;
  }

  absl::StatusOr<std::unique_ptr<SumTarget>> make_target(const cuda::RankDevice& rank,
                                                         const cuda::DeviceRequest& request,
                                                         const Pattern& pattern) {
    const WireType type = options_.sweep.type;
    const std::size_t elements = options_.sweep.counts.back();
    if (!on_device_) return make_host_target(process_.group(), type, pattern, elements);
    auto exchange = cuda::make_exchange(rank, request, type, 0, {elements, elements});
    if (!exchange.ok()) return exchange.status();
    return make_device_target(rank.device, *std::move(exchange), pattern, elements);
  }

  int sweep(SumTarget& target, LineOutput& output) {
    const bool prints = process_.facts().rank == 0;
    const auto table = [&](const std::string& line) {
      if (!prints) return;
      if (!options_.json) return output.write(line);
      const std::string whole = line + "\n";
      (void)!::write(STDERR_FILENO, whole.data(), whole.size());
    };
    const auto json = [&](const std::string& line) {
      if (prints && options_.json) output.write(line);
    };
    for (const std::string& line : table_head(facts_))
      table(line);
    ProgressReport progress{.state = "benchmark"};
    const auto result = run_sweep(process_.group(), target, options_.sweep, process_.overseer(),
                                  [&](const SweepRow& row) {
                                    table(table_row(row));
                                    json(row_json(facts_, row));
                                    ++progress.step;
                                    process_.report(progress);
                                  });
    if (!result.ok()) return failed(result.status());
    const absl::Status closed = target.close();
    if (!closed.ok()) return failed(closed);
    for (const std::string& line : table_end(*result))
      table(line);
    json(end_json(facts_, *result));
    return verdict(*result);
  }

  // To the launcher the first rank to fail is the cause, and it stops the others. So those whose
  // results are right wait for that, and one with wrong ones until rank 0 has printed all.
  int verdict(const SweepResult& result) {
    const std::string wrong = wrong_text(result);
    if (wrong.empty()) {
      process_.overseer().retire();
      return result.stopped ? kExitStopped : kExitDone;
    }
    const auto rank = static_cast<std::size_t>(process_.facts().rank);
    const bool right_here = result.wrong[rank] == 0;
    if (right_here) process_.note(wrong);
    process_.overseer().collective_begins();
    (void)barrier(process_.group());  // whether they come or not
    process_.overseer().collective_ends();
    if (!right_here) return process_.failed({kExitWrongResult, wrong});
    std::this_thread::sleep_for(kStopPatience);
    return process_.failed({kExitWrongResult, "another rank's results are wrong", true});
  }

  RankProcess& process_;
  const cuda::DeviceLibraries& libraries_;
  const BenchOptions& options_;
  bool on_device_ = false;
  BenchFacts facts_;
};

}  // namespace

int run_bench_collectives(RankProcess& process, const cuda::DeviceLibraries& libraries,
                          const BenchOptions& options) {
  return Bench(process, libraries, options).run();
}

}  // namespace muster::runtime
