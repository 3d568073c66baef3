// SPDX-License-Identifier: Apache-2.0
//
// Which server and job an operator's command means: --rendezvous and --job, or this user's only
// live job on this host.
#pragma once

#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "launcher/commands/small_flags.h"
#include "launcher/rendezvous/shell/control_client.h"
#include "proto/base/time.h"

namespace muster::launcher {

struct OperatorTarget {
  rendezvous::ControlTarget control;
  std::string flag;          // for messages: what the address came from
  std::optional<JobId> job;  // nullopt: all (status), or the only one
};

// Errors: kInvalidArgument, in words for people; for --token-file and --tls-*, the one of the file
// too.
absl::StatusOr<OperatorTarget> find_target(const SmallLine& line);

// Says why the server gave no answer or would not; returns the exit code.
int explain_refusal(const OperatorTarget& target, const absl::Status& status);

inline constexpr Duration kOperatorPatience = 5s;  // for one question

}  // namespace muster::launcher
