// SPDX-License-Identifier: Apache-2.0
//
// How one option's text becomes one field of RunOptions: the apply functions of option_table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/status.h>

#include "launcher/commands/options.h"

namespace muster::launcher::apply {

using Text = const std::string&;

absl::Status nnodes(Text text, RunOptions& options);
absl::Status nproc(Text text, RunOptions& options);
absl::Status job_id(Text text, RunOptions& options);
absl::Status max_restarts(Text text, RunOptions& options);
absl::Status max_node_losses(Text text, RunOptions& options);
absl::Status max_no_progress(Text text, RunOptions& options);
absl::Status quarantine(Text text, RunOptions& options);
absl::Status spares(Text text, RunOptions& options);
absl::Status fence(Text text, RunOptions& options);
absl::Status grow(Text text, RunOptions& options);
absl::Status backend(Text text, RunOptions& options);
absl::Status rdzv_conf(Text text, RunOptions& options);
absl::Status master_port(Text text, RunOptions& options);
absl::Status master_port_range(Text text, RunOptions& options);
absl::Status master_port_hold(Text text, RunOptions& options);
absl::Status role(Text text, RunOptions& options);
absl::Status hang_timeout(Text text, RunOptions& options);
absl::Status silence_timeout(Text text, RunOptions& options);
absl::Status numa_binding(Text text, RunOptions& options);
absl::Status scheduler(Text text, RunOptions& options);
absl::Status keep_fds(Text text, RunOptions& options);
absl::Status node_rank(Text text, RunOptions& options);
absl::Status node_name(Text text, RunOptions& options);
absl::Status advertise_addr(Text text, RunOptions& options);
absl::Status http(Text text, RunOptions& options);
absl::Status metrics_addr(Text text, RunOptions& options);
absl::Status stop_scope(Text text, RunOptions& options);
absl::Status exit_grace(Text text, RunOptions& options);
absl::Status stop_signal(Text text, RunOptions& options);
absl::Status forward_signals(Text text, RunOptions& options);
absl::Status exit_code(Text text, RunOptions& options);
absl::Status stdin_choice(Text text, RunOptions& options);
absl::Status console(Text text, RunOptions& options);
absl::Status redirects(Text text, RunOptions& options);
absl::Status tee(Text text, RunOptions& options);
absl::Status log_level(Text text, RunOptions& options);
// option_log_values.cc
absl::Status log_prefix(Text text, RunOptions& options);
absl::Status local_ranks_filter(Text text, RunOptions& options);
absl::Status stdout_filters(Text text, RunOptions& options);
absl::Status stderr_filters(Text text, RunOptions& options);
absl::Status log_rotate(Text text, RunOptions& options);
absl::Status log_keep(Text text, RunOptions& options);

// Fields that take the text, the switch or the duration as it is.
template <auto Member>
absl::Status text(Text value, RunOptions& options) {
  options.*Member = value;
  return absl::OkStatus();
}

absl::Status read_switch(Text text, bool& value);
absl::Status read_duration(Text text, bool zero_allowed, Duration& value);

template <auto Member>
absl::Status toggle(Text value, RunOptions& options) {
  return read_switch(value, options.*Member);
}
template <auto Member>
absl::Status policy_toggle(Text value, RunOptions& options) {
  return read_switch(value, options.policy.*Member);
}
template <auto Member, bool kZeroAllowed = true>
absl::Status duration(Text value, RunOptions& options) {
  return read_duration(value, kZeroAllowed, options.*Member);
}
template <auto Member, bool kZeroAllowed = true>
absl::Status policy_duration(Text value, RunOptions& options) {
  return read_duration(value, kZeroAllowed, options.policy.*Member);
}

}  // namespace muster::launcher::apply
