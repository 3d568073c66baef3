// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/images.h"

#include <cstdint>
#include <cstring>

#include <absl/status/status.h>

namespace muster::runtime::cuda {
namespace {

constexpr std::uint32_t kMagic = 0xBA55ED50;
constexpr std::size_t kEntryHead = 32;  // as much of an entry's header as is read here
constexpr std::uint16_t kPtx = 1;
constexpr std::uint16_t kMachineCode = 2;

template <class T>
T read(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

absl::Status broken(const char* what, std::size_t at) {
  return absl::InvalidArgumentError(std::string("no fatbin: ") + what + " at byte " +
                                    std::to_string(at));
}

}  // namespace

// A head {magic u32, version u16, size of the head u16, size of what follows u64}, then entries
// {kind u16, version u16, size of its head u32, size of its code u64, …, capability u32 at 28}.
absl::StatusOr<std::vector<CodeEntry>> code_in(std::span<const std::byte> fatbin) {
  if (fatbin.size() < 16 || read<std::uint32_t>(fatbin, 0) != kMagic) return broken("magic", 0);
  const std::size_t head = read<std::uint16_t>(fatbin, 6);
  const std::uint64_t rest = read<std::uint64_t>(fatbin, 8);
  if (head < 16 || head > fatbin.size() || rest > fatbin.size() - head) return broken("size", 8);
  const std::size_t end = head + static_cast<std::size_t>(rest);
  std::vector<CodeEntry> entries;
  for (std::size_t at = head; at < end;) {
    if (end - at < kEntryHead) return broken("cut entry", at);
    const auto kind = read<std::uint16_t>(fatbin, at);
    const std::size_t entry_head = read<std::uint32_t>(fatbin, at + 4);
    const std::uint64_t size = read<std::uint64_t>(fatbin, at + 8);
    if (entry_head < kEntryHead || entry_head > end - at || size > end - at - entry_head) {
      return broken("entry's size", at);
    }
    if (kind == kPtx || kind == kMachineCode) {
      entries.push_back({kind == kPtx, static_cast<int>(read<std::uint32_t>(fatbin, at + 28))});
    }
    at += entry_head + static_cast<std::size_t>(size);
  }
  return entries;
}

std::string code_text(std::span<const std::byte> fatbin) {
  const auto entries = code_in(fatbin);
  if (!entries.ok()) return "no code that reads";
  std::string machine;
  std::string ptx;
  for (const CodeEntry& entry : *entries) {
    const std::string capability =
        std::to_string(entry.capability / 10) + "." + std::to_string(entry.capability % 10);
    if (entry.ptx) {
      ptx = "PTX for " + capability + " and newer";
    } else {
      machine += (machine.empty() ? "code for " : " and ") + capability;
    }
  }
  return machine + (machine.empty() || ptx.empty() ? "" : ", ") + ptx;
}

}  // namespace muster::runtime::cuda
