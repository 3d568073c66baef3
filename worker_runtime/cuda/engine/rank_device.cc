// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/engine/rank_device.h"

#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <unistd.h>
#include <utility>

#include "worker_runtime/collectives/ops.h"
#include "worker_runtime/cuda/nccl_settings.h"

namespace muster::runtime::cuda {
namespace {

std::string line_of(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string this_host() {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  return std::string(name) + "/" + line_of("/proc/sys/kernel/random/boot_id");
}

std::string words(const absl::Status& status) {
  return std::string(status.message());
}

// Counts as cublasLtGetVersion does: 120803 is 12.8.3.
int cuda_of_blas(std::size_t version) {
  return static_cast<int>(version / 10000) * 1000;
}

std::string blas_text(std::size_t version) {
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

absl::Status open_libraries(const DeviceLibraries& libraries, int local_rank, RankDevice& rank) {
  if (libraries.images().empty()) {
    return absl::NotFoundError(
        "this build has no device code: no nvcc was found when it was made, or MUSTER_CUDA was "
        "OFF");
  }
  auto driver = libraries.driver();
  if (!driver.ok()) return driver.status();
  int count = 0;
  absl::Status status = cuda_status(*driver, driver->cuInit(0), "cuInit");
  if (status.ok()) {
    status = cuda_status(*driver, driver->cuDeviceGetCount(&count), "cuDeviceGetCount");
  }
  if (!status.ok()) return status;
  if (count == 0) return absl::NotFoundError("this process sees no CUDA device");
  auto blas = libraries.blas();
  if (!blas.ok()) return blas.status();
  rank.blas = *std::move(blas);
  auto device = Device::open(*driver, local_rank % count, libraries.images());
  if (!device.ok()) return device.status();
  rank.device = *std::move(device);
  return absl::OkStatus();
}

void look_at_nccl(const DeviceLibraries& libraries, RankDevice& rank) {
  auto nccl = libraries.nccl();
  if (!nccl.ok()) {
    rank.report.why_not_nccl = words(nccl.status());
    return;
  }
  rank.nccl = *std::move(nccl);
  rank.nccl_limits = libraries.nccl_limits;
  rank.report.facts.nccl = rank.nccl->version;
  rank.report.settings = nccl_settings_of_process();
  rank.report.libraries += ", NCCL " + nccl_version_text(rank.nccl->version);
}

RankDevice open(const DeviceLibraries& libraries, const DeviceRequest& request) {
  RankDevice rank;
  DeviceReport& report = rank.report;
  report.facts.host = this_host();
  const absl::Status found = open_libraries(libraries, request.local_rank, rank);
  if (!found.ok()) {
    report.why_not = words(found);
    return rank;
  }
  const DeviceFacts& device = rank.device->facts();
  const std::size_t blas = rank.blas.cublasLtGetVersion();
  report.facts.device = device.name;
  report.facts.uuid = device.uuid;
  report.facts.pci_bus = device.pci_bus;
  report.facts.capability = device.capability_major * 10 + device.capability_minor;
  report.facts.driver = driver_branch(line_of("/proc/driver/nvidia/version"));
  report.facts.driver_cuda = device.driver_version;
  report.facts.libraries_cuda = cuda_of_blas(blas);
  report.libraries = "compute capability " + std::to_string(device.capability_major) + "." +
                     std::to_string(device.capability_minor) + ", CUDA " +
                     cuda_version_text(device.driver_version) + " driver, " + blas_text(blas);
  const absl::Status fits = check_rank(report.facts, request.group->rank());
  if (!fits.ok()) report.why_not = words(fits);
  if (request.group->size() > 1) look_at_nccl(libraries, rank);
  return rank;
}

absl::StatusOr<std::vector<DeviceReport>> exchange_reports(Collectives& group,
                                                           const DeviceReport& mine) {
  const std::string line = report_line(mine);
  const auto lines = all_gather(group, std::as_bytes(std::span(line)));
  if (!lines.ok()) return lines.status();
  std::vector<DeviceReport> reports;
  for (const std::vector<std::byte>& bytes : *lines) {
    std::string text(bytes.size(), '\0');
    if (!bytes.empty()) std::memcpy(text.data(), bytes.data(), bytes.size());
    auto report = read_report_line(text);
    if (!report.ok()) return report.status();
    reports.push_back(*std::move(report));
  }
  return reports;
}

// Ranks that do not fit together were refused before; what is left is peers that do not come.
absl::StatusOr<std::unique_ptr<Communicator>> connect(const RankDevice& rank,
                                                      const DeviceRequest& request) {
  CommunicatorOptions options;
  options.rank = request.group->rank();
  options.size = request.group->size();
  options.generation = request.group->generation();
  options.limits = rank.nccl_limits;
  options.facts = rank.report.facts;
  options.stopping = request.stopping;
  options.failed = request.failed;
  options.end = request.end;
  auto made = Communicator::connect(*rank.nccl, rank.device, *request.store, options);
  if (absl::IsFailedPrecondition(made.status())) {
    return absl::InternalError(made.status().message());
  }
  return made;
}

}  // namespace

absl::StatusOr<RankDevice> open_rank_device(const DeviceLibraries& libraries,
                                            const DeviceRequest& request) {
  const DeviceWish& wish = request.wish;
  if (wish.device == DeviceChoice::kCpu || wish.backend == "tcp") return RankDevice();
  RankDevice rank = open(libraries, request);
  const auto reports = exchange_reports(*request.group, rank.report);
  if (!reports.ok()) return reports.status();
  auto decision = decide_device(wish, *reports);
  if (!decision.ok()) return decision.status();
  rank.notes = std::move(decision->notes);
  rank.backend = decision->backend;
  if (!decision->on_device) {
    rank.device = nullptr;
  }
  return rank;
}

absl::StatusOr<std::unique_ptr<GradientExchange>> make_exchange(const RankDevice& rank,
                                                                const DeviceRequest& request,
                                                                WireType wire,
                                                                std::uint64_t layout_hash,
                                                                const ExchangeRoom& room) {
  if (rank.backend == DeviceBackend::kAlone) return make_no_exchange();
  if (rank.backend == DeviceBackend::kStaged) {
    return make_staged_exchange(rank.device, *request.group, wire, layout_hash, room);
  }
  auto communicator = connect(rank, request);
  if (!communicator.ok()) return communicator.status();
  return make_nccl_exchange(rank.device, *std::move(communicator), wire, room);
}

}  // namespace muster::runtime::cuda
