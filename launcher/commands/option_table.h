// SPDX-License-Identifier: Apache-2.0
//
// The one table of `muster run`'s options. The parser, `--help` and `--print-config` are made
// from it, so that none of them can say something the others do not. A new option is one row
// here, one field in RunOptions and one apply function.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <absl/status/status.h>

namespace muster::launcher {

struct RunOptions;

enum class OptionGroup : std::uint8_t {
  kJob,
  kEndpoint,
  kProgram,
  kFailure,
  kStopping,
  kTiming,
  kOutput,
  kChaos,
  kOther
};

enum class OptionKind : std::uint8_t { kSwitch, kText, kCount, kDuration };

enum class Standing : std::uint8_t {
  kHere,     // does what its help says
  kIgnored,  // accepted; one line says why it has no effect
};

struct OptionDef {
  std::string_view name;      // canonical, with dashes: "stop-grace"
  std::string_view torchrun;  // torchrun's name for it; empty: Muster's own
  char letter = 0;            // "-r"; 0: none
  Standing standing = Standing::kHere;
  OptionKind kind = OptionKind::kText;
  OptionGroup group = OptionGroup::kOther;
  std::string_view metavar{};
  std::string_view fallback{};  // default, as the apply function reads it; empty: none
  std::string_view help{};      // for kIgnored: why
  // Reads one value into the options. An error's message says what is wrong with the value; the
  // caller puts the flag's or variable's name before it. nullptr: nothing to store.
  absl::Status (*apply)(const std::string& text, RunOptions& options) = nullptr;
  bool has_pet = true;  // torchrun reads PET_<NAME> for it
};

std::span<const OptionDef> option_table();

// "MUSTER_STOP_GRACE", "PET_SHUTDOWN_TIMEOUT" (empty where torchrun has no such variable).
std::string muster_variable(const OptionDef& option);
std::string pet_variable(const OptionDef& option);

const char* group_title(OptionGroup group);

}  // namespace muster::launcher
