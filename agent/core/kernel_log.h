// SPDX-License-Identifier: Apache-2.0
//
// What the kernel's log says when a worker fails: NVIDIA's Xid and SXid reports (among them those
// of memory errors, ECC), main memory that the kernel gave up, and whom it killed because memory
// ran out. A worker that lost its GPU shows an error of its library, or a signal; here stands why.
// Pure: text in, words out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/time.h"

namespace muster::agent {

struct DeviceTrouble {
  enum class Kind : std::uint8_t {
    kXid,     // a GPU
    kSxid,    // an NVSwitch
    kMemory,  // main memory, uncorrectable
  };
  Kind kind = Kind::kXid;
  Instant at;                       // by the kernel's clock since boot
  std::string device;               // PCI address as the log has it: "0000:1b:00"; may be empty
  int number = 0;                   // kXid, kSxid
  std::optional<std::int64_t> pid;  // of the process that it hit, by the host's numbers
  std::string text;                 // what follows the number, or the whole message
  bool operator==(const DeviceTrouble&) const = default;
};

// One record of /dev/kmsg ("4,1201,5141234567,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=…"), without
// its further lines. nullopt: about something else, or not in this form.
std::optional<DeviceTrouble> parse_kernel_record(std::string_view record);

// The pid, by the host's numbers, of a process that the record says is killed because memory ran
// out. The kernel writes it before it sends SIGKILL, unless too many such records came just before;
// a second one comes with the signal.
std::optional<std::int64_t> parse_oom_victim(std::string_view record);

// "GPU memory page fault, usually an invalid address in the program" for 31; empty: no common one.
std::string_view xid_meaning(int number);

// One line for a worker (`pid`) that failed at `now`: what happened shortly before, its own first,
// each device and number once. Empty: nothing.
std::string describe(const std::vector<DeviceTrouble>& troubles, std::int64_t pid, Instant now);

}  // namespace muster::agent
