// SPDX-License-Identifier: Apache-2.0
//
// `muster run`'s options: from words and environment to one checked structure. Pure: reads no
// file (but the fault plan), asks no clock and no kernel.
//
// Two steps, so that a refusal always names where the value came from:
//   parse_command_line  words and variables -> one Setting an option, program words untouched
//   resolve_options     Settings -> RunOptions, with the rules that span several options
// Errors are one line for people, without "muster: "; all of them end in exit code 2.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "agent/shell/log_rules.h"
#include "launcher/commands/placement.h"
#include "proto/base/faults.h"
#include "proto/base/job.h"
#include "proto/base/time.h"

namespace muster::launcher {

using EnvironmentMap = std::map<std::string, std::string>;

// One option's text and where it came from: "flag", a variable's name, "detected", "default".
struct Setting {
  std::string text;
  std::string source = "default";
  bool given() const { return source != "default"; }
  bool operator==(const Setting&) const = default;
};

struct CommandLine {
  std::vector<Setting> settings;     // one for each row of option_table()
  std::vector<std::string> program;  // everything from the program on, byte for byte
  std::vector<std::string> notes;    // lines to show: what is ignored, and why
  bool nested = false;               // in a worker of another `muster run`, and not --inherit
  bool help = false;
  bool print_config = false;
};

// A server's address as the user wrote it.
struct Endpoint {
  std::string host;  // without brackets
  std::uint16_t port = 0;
  std::string text() const;  // "host:port", IPv6 in brackets
  bool operator==(const Endpoint&) const = default;
};

// `--redirects` and `--tee`: bit 0 stdout, bit 1 stderr.
struct StreamChoice {
  unsigned everyone = 0;                      // local ranks without an entry of their own
  std::map<std::uint32_t, unsigned> by_rank;  // by local rank
  unsigned of(std::uint32_t local_rank) const;
  bool operator==(const StreamChoice&) const = default;
};

enum class StdinChoice : std::uint8_t { kLocalRank, kNone, kAll };
enum class ConsoleChoice : std::uint8_t { kAuto, kPrefixed, kLines, kRaw, kPty, kRank0, kNone };
enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError };

struct RunOptions {
  // Job.
  // What a scheduler says of this node; see scheduler_facts.h.
  std::optional<std::uint32_t> scheduler_index;
  bool scheduler_strips_pmi = false;
  std::uint32_t min_nodes = 1;
  std::uint32_t max_nodes = 1;
  std::string nproc = "1";  // auto, gpu, cpu or a number; see nproc.h
  std::string job_id;
  JobPolicy policy;
  // Where the server is.
  bool standalone = false;  // asked for, or the only meaning the rest leaves
  std::string rdzv_endpoint;
  std::optional<Endpoint> http;  // an empty host: every address
  std::optional<Endpoint> metrics_addr;
  std::string token_file;  // paths
  std::string tls_cert;
  std::string tls_key;
  std::string tls_ca;
  std::string master_addr;
  std::optional<std::uint16_t> master_port;
  std::optional<Endpoint> endpoint;  // resolved; nullopt when standalone
  std::map<std::string, std::string> rdzv_conf;
  std::optional<bool> is_host;
  // This node.
  std::optional<std::uint32_t> node_rank;
  std::string node_name;  // empty: the host name
  std::string advertise_addr;
  std::uint16_t master_port_low = 20000;
  std::uint16_t master_port_high = 28999;
  bool master_port_hold = true;
  bool inherit = false;  // in a worker of another `muster run`: as if it were none
  // Devices.
  std::string devices;              // as given; see device_options.h
  bool virtual_local_rank = false;  // every worker has a device list of one
  NumaBinding numa_binding = NumaBinding::kNone;
  // Hangs.
  std::optional<Duration> hang_timeout;
  Duration hang_first{0};  // before the first report
  std::optional<Duration> silence_timeout;
  // Program.
  bool module = false;
  bool no_python = false;
  std::string python;
  bool pass_local_rank = false;
  bool no_substitute = false;
  bool run_path = false;
  std::string role = "default";
  std::vector<int> keep_fds;  // ascending
  std::vector<std::string> program;
  // Stopping.
  Duration stop_budget = 30s;
  Duration pod_grace = 30s;
  std::optional<int> stop_signal;  // nullopt: "same"
  std::vector<int> forward_signals;
  std::string signals_to_handle;       // as given; see signal_options.h
  std::vector<int> more_stop_signals;  // besides INT, TERM, HUP and QUIT
  bool stop_whole_group = false;       // the first signal, not the leader alone
  std::optional<Duration> exit_grace;  // nullopt: the stop grace
  bool flat_exit_code = false;
  // Output.
  StdinChoice stdin_choice = StdinChoice::kLocalRank;
  std::uint32_t stdin_local_rank = 0;
  ConsoleChoice console = ConsoleChoice::kAuto;
  std::string termination_log;    // empty: the pod's, where there is one; "none"
  std::string log_prefix;         // see agent/core/line_prefix.h
  bool log_prefix_given = false;  // by the user, for Muster
  std::string log_dir;            // empty: the default of contracts, see state_dir.h
  StreamChoice redirects;
  StreamChoice tee;
  std::set<std::uint32_t> shown_local_ranks;  // empty: all
  std::vector<std::string> stdout_filters;
  std::vector<std::string> stderr_filters;
  agent::LogRotation log_rotation;
  agent::LogKeep log_keep;
  std::string events;  // empty: off; "-": stdout
  std::string server_events;
  LogLevel log_level = LogLevel::kWarning;
  bool quiet = false;
  // Faults.
  std::string chaos;  // as given
  FaultPlan faults;
  bool chaos_strict = false;
};

// `args` are the words after "run". Unknown, ambiguous and valueless options are errors.
absl::StatusOr<CommandLine> parse_command_line(const std::vector<std::string>& args,
                                               const EnvironmentMap& environment);

// Applies every setting and the rules that span several. Adds lines to `line.notes`, and marks in
// `line.settings` what was detected or overridden. Reads the fault plan's file where one is named.
absl::StatusOr<RunOptions> resolve_options(CommandLine& line, const EnvironmentMap& environment);

// The row of `name` in option_table(). REQUIRES: it is one.
std::size_t option_index(std::string_view name);

// Names of the environment variables that are options of ours; workers do not inherit them.
std::vector<std::string> option_variables();

// True for an IPv4 or IPv6 address (no brackets; a scope is allowed) and for a host's name.
bool is_host(std::string_view host);

// "host", "host:port", "[v6]:port", ":port". `default_port` where none is written.
absl::StatusOr<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port);
// Where to listen: as above, or ":port" and "port" for every address (then `host` is empty).
absl::StatusOr<Endpoint> parse_listen(std::string_view text,
                                      std::optional<std::uint16_t> default_port = std::nullopt);
inline constexpr std::uint16_t kRendezvousPort = 29400;  // where none is given; torchrun's c10d

}  // namespace muster::launcher
