// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/trial_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace muster::runtime::cuda::gpu_check {
namespace {

std::byte* byte_at(void* memory, std::size_t offset) {
  return static_cast<std::byte*>(memory) + offset;
}

absl::Status fill(const TrialBuffer& buffer, void* memory, Stream& stream) {
  std::size_t filled = std::min(buffer.pattern.size(), buffer.size);
  absl::Status status = stream.copy_to_device(memory, buffer.pattern.data(), filled);
  // Doubled, it repeats as before.
  while (status.ok() && filled < buffer.size) {
    const std::size_t more = std::min(filled, buffer.size - filled);
    status = stream.copy(byte_at(memory, filled), memory, more);
    filled += more;
  }
  return status;
}

HostBytes filled(const TrialBuffer& buffer) {
  HostBytes bytes(buffer.size);
  for (std::size_t at = 0; at < buffer.size; at += buffer.pattern.size()) {
    std::memcpy(bytes.data() + at, buffer.pattern.data(),
                std::min(buffer.pattern.size(), buffer.size - at));
  }
  return bytes;
}

std::string first_other_byte(const HostBytes& got, const HostBytes& want, std::size_t element) {
  const auto at = static_cast<std::size_t>(
      std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin());
  std::size_t others = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    others += got[i] != want[i] ? 1U : 0U;
  return "element " + std::to_string(at / std::max<std::size_t>(1, element)) + " of " +
         std::to_string(got.size() / std::max<std::size_t>(1, element)) + " differs, " +
         std::to_string(others) + " bytes in all";
}

// The worst distance, as a share of the largest number.
std::string too_far(const TrialBuffer& buffer, const HostBytes& got, const HostBytes& want) {
  double largest = 0;
  double worst = 0;
  std::size_t worst_at = 0;
  const std::size_t count = buffer.size / buffer.number_size;
  for (std::size_t i = 0; i < count; ++i) {
    const double a = static_cast<double>(buffer.number(got.data() + i * buffer.number_size));
    const double b = static_cast<double>(buffer.number(want.data() + i * buffer.number_size));
    largest = std::max(largest, std::abs(b));
    const double distance = std::abs(a - b);
    if (distance > worst || std::isnan(distance)) {
      worst = std::isnan(distance) ? HUGE_VAL : distance;
      worst_at = i;
    }
  }
  if (worst <= buffer.tolerance * largest) return "";
  return "element " + std::to_string(worst_at) + " is off by " + std::to_string(worst) +
         ", the largest number being " + std::to_string(largest);
}

}  // namespace

Places DeviceTrial::places() const {
  std::vector<void*> at;
  for (const Memory& memory : memory_)
    at.push_back(memory.data());
  return Places(std::move(at));
}

absl::StatusOr<DeviceTrial> DeviceTrial::prepare(const Trial& trial, Device& device,
                                                 Stream& stream) {
  DeviceTrial made(trial);
  for (const TrialBuffer& buffer : trial.buffers) {
    auto memory = device.allocate(buffer.size);
    if (!memory.ok()) return memory.status();
    const absl::Status status = fill(buffer, memory->data(), stream);
    if (!status.ok()) return status;
    made.memory_.push_back(*std::move(memory));
  }
  const absl::Status status = stream.synchronize();
  if (!status.ok()) return status;
  return made;
}

absl::StatusOr<std::vector<HostBytes>> DeviceTrial::fetch(Stream& stream) const {
  std::vector<HostBytes> all;
  for (const Memory& memory : memory_) {
    HostBytes bytes(memory.size());
    const absl::Status queued = stream.copy_to_host(bytes.data(), memory.data(), bytes.size());
    if (!queued.ok()) return queued;
    const absl::Status arrived = stream.synchronize();
    if (!arrived.ok()) return arrived;
    all.push_back(std::move(bytes));
  }
  return all;
}

std::vector<HostBytes> run_trial_on_host(const Trial& trial) {
  std::vector<HostBytes> all;
  std::vector<void*> at;
  at.reserve(trial.buffers.size());
  for (const TrialBuffer& buffer : trial.buffers)
    all.push_back(filled(buffer));
  for (HostBytes& bytes : all)
    at.push_back(bytes.data());
  trial.on_host(Places(std::move(at)));
  return all;
}

std::string difference(const Trial& trial, const std::vector<HostBytes>& device,
                       const std::vector<HostBytes>& host) {
  for (std::size_t i = 0; i < trial.buffers.size(); ++i) {
    const TrialBuffer& buffer = trial.buffers[i];
    std::string text;
    if (buffer.written && buffer.tolerance > 0) {
      text = too_far(buffer, device[i], host[i]);
    } else if (device[i] != host[i]) {
      text = first_other_byte(device[i], host[i], buffer.number_size);
    }
    if (text.empty()) continue;
    return (buffer.written ? "array " : "an input was written: array ") + std::to_string(i) + ", " +
           text;
  }
  return "";
}

}  // namespace muster::runtime::cuda::gpu_check
