// SPDX-License-Identifier: Apache-2.0
//
// Settings to RunOptions: each value read under its source's name, then the rules that span
// several options.
#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include <absl/status/status.h>

#include "agent/core/line_prefix.h"
#include "launcher/commands/chaos_plan.h"
#include "launcher/commands/option_table.h"
#include "launcher/commands/options.h"
#include "launcher/commands/scheduler_facts.h"
#include "launcher/commands/signal_options.h"
#include "launcher/commands/text.h"
#include "proto/base/nearest.h"

namespace muster::launcher {
namespace {

constexpr std::uint16_t kDefaultMasterPort = 29500;  // torchrun's static
// What an agent that was signalled keeps of its stop budget for itself.
constexpr Duration kBudgetReserve = 3s;

class Resolver {
 public:
  Resolver(CommandLine& line, const EnvironmentMap& environment)
      : line_(line), environment_(environment) {}

  absl::StatusOr<RunOptions> run() {
    using Rule = absl::Status (Resolver::*)();
    detect();
    if (absl::Status status = detect_scheduler(); !status.ok()) return status;
    for (const Rule rule :
         {&Resolver::apply_all, &Resolver::read_conf, &Resolver::check_node_rank,
          &Resolver::place_server, &Resolver::check_times, &Resolver::check_signals,
          &Resolver::check_program, &Resolver::check_output, &Resolver::read_chaos}) {
      if (absl::Status status = (this->*rule)(); !status.ok()) return status;
    }
    options_.program = line_.program;
    return std::move(options_);
  }

 private:
  Setting& setting(std::string_view name) { return line_.settings[option_index(name)]; }
  bool given(std::string_view name) { return setting(name).given(); }

  // "--nnodes" or "PET_NNODES": whatever the value came from.
  std::string origin(std::string_view name) {
    const std::string& source = setting(name).source;
    const bool variable = source.starts_with("PET_") || source.starts_with("MUSTER_") ||
                          source.starts_with("TORCH") || source == "LOGLEVEL";
    return variable ? source : cat("--", name);
  }

  void note(std::string text) { line_.notes.push_back(std::move(text)); }

  const std::string* variable(const std::string& name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() || found->second.empty() ? nullptr : &found->second;
  }

  // Sources below PET_: torchrun's other variables and what the surroundings say.
  void detect() {
    if (const std::string* text = variable("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")) {
      if (!given("stop-grace")) {
        setting("stop-grace") = {*text, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"};
      }
    }
    if (const std::string* text = variable("LOGLEVEL")) detect_log_level(*text);
    detect_forward_signals(line_, environment_);
    const std::string* ci = variable("CI");
    if (!given("chaos-strict") && ci != nullptr && *ci != "0" && *ci != "false") {
      setting("chaos-strict") = {"1", "detected"};
    }
    if (environment_.contains("MUSTER_GENERATION")) return;  // meant for the launcher outside
    const std::string prefix = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";
    if (const std::string* text = variable(prefix); text != nullptr && !given("log-prefix")) {
      setting("log-prefix") = {agent::line_prefix_of_torchrun(*text), prefix};
    }
    const std::pair<const char*, const char*> unused[] = {
        {"TORCHELASTIC_ENABLE_FILE_TIMER", "this version has no timers for workers"},
        {"TORCHELASTIC_HEALTH_CHECK_PORT", "this version serves no health check"},
        {"TORCH_ELASTIC_WORKER_IDENTICAL", "the server assigns all ranks anyway"}};
    for (const auto& [name, why] : unused) {
      if (variable(name) != nullptr) note(cat(name, " is ignored: ", why));
    }
  }

  // What a scheduler says is below everything that the user said. By itself it never makes a job of
  // several nodes: who sits in an allocation may want a job on this node alone.
  absl::Status detect_scheduler() {
    const std::string wanted = setting("scheduler").text;
    const bool named = wanted != "auto" && wanted != "none";
    if (wanted == "none" || setting("standalone").text == "1" || line_.nested) {
      return absl::OkStatus();
    }
    const std::optional<SchedulerFacts> facts = find_scheduler(environment_, wanted);
    const std::string_view proof = proof_of_scheduler(wanted);
    if (!facts && named && !proof.empty()) {
      return absl::InvalidArgumentError(cat(origin("scheduler"), " ", wanted,
                                            ": it did not start this process (", proof,
                                            " is not set)"));
    }
    if (!facts) return absl::OkStatus();
    const bool has_endpoint = given("rdzv-endpoint") || given("master-addr");
    const bool several = facts->nodes.value_or(1) > 1;
    if (named && several && !has_endpoint && !facts->first_host.empty()) {
      setting("rdzv-endpoint") = {facts->first_host, "detected"};
    }
    if (several && !given("nnodes") && (named || has_endpoint)) {
      setting("nnodes") = {std::to_string(*facts->nodes), "detected"};
      note(cat(facts->name, " started this node (", facts->evidence, "): a job of ", *facts->nodes,
               " nodes; --nnodes says otherwise"));
    } else if (several && !given("nnodes")) {
      note(cat(facts->name, " started ", *facts->nodes, " nodes (", facts->evidence,
               "), but this is a job of one node: --rdzv-endpoint, --nnodes or --scheduler ",
               facts->name, " make it one of all"));
    }
    if (facts->flat_exit_code && !given("exit-code")) setting("exit-code") = {"flat", "detected"};
    options_.scheduler_index = facts->index;
    options_.scheduler_strips_pmi = facts->strips_pmi;
    return absl::OkStatus();
  }

  // Python's names for levels; anything else is some other program's variable.
  void detect_log_level(const std::string& text) {
    if (given("log-level")) return;
    const std::pair<const char*, const char*> levels[] = {{"DEBUG", "debug"},
                                                          {"INFO", "info"},
                                                          {"WARNING", "warning"},
                                                          {"ERROR", "error"},
                                                          {"CRITICAL", "error"}};
    for (const auto& [name, level] : levels) {
      if (text == name) setting("log-level") = {level, "LOGLEVEL"};
    }
  }

  absl::Status apply_all() {
    for (std::size_t i = 0; i < option_table().size(); ++i) {
      const OptionDef& option = option_table()[i];
      const Setting& value = line_.settings[i];
      if (option.apply == nullptr || (value.text.empty() && value.source == "default")) continue;
      const absl::Status status = option.apply(value.text, options_);
      if (!status.ok()) {
        return absl::InvalidArgumentError(cat(origin(option.name), ": ", status.message()));
      }
    }
    return absl::OkStatus();
  }

  absl::Status conf_error(std::string_view key, std::string_view what) {
    return absl::InvalidArgumentError(cat(origin("rdzv-conf"), ": ", key, ": '",
                                          options_.rdzv_conf.at(std::string(key)), "' is not ",
                                          what));
  }

  absl::Status read_conf() {
    static const std::set<std::string_view> kInert{
        "close_timeout", "heartbeat",    "heartbeat_timeout",
        "read_timeout",  "store_type",   "use_libuv",
        "timeout",       "rank",         "protocol",
        "cacert",        "cert",         "key",
        "ssl_cert",      "ssl_cert_key", "ca_cert"};
    for (const auto& [key, value] : options_.rdzv_conf) {
      const bool known = kInert.contains(key) || key == "join_timeout" ||
                         key == "last_call_timeout" || key == "is_host" ||
                         key == "keep_alive_interval" || key == "keep_alive_max_attempt";
      if (known) continue;
      const std::string near = nearest(key, {"join_timeout", "last_call_timeout", "is_host",
                                             "keep_alive_interval", "keep_alive_max_attempt"});
      return absl::InvalidArgumentError(cat(origin("rdzv-conf"), ": unknown key '", key, "'",
                                            near.empty() ? "" : cat("; did you mean ", near, "?")));
    }
    absl::Status status =
        conf_duration("join_timeout", "join-timeout", options_.policy.join_timeout);
    if (!status.ok()) return status;
    status = conf_duration("last_call_timeout", "last-call", options_.policy.last_call);
    if (!status.ok()) return status;
    status = conf_keep_alive();
    return status.ok() ? conf_is_host() : status;
  }

  absl::Status conf_duration(const std::string& key, std::string_view option, Duration& field) {
    const auto found = options_.rdzv_conf.find(key);
    if (found == options_.rdzv_conf.end()) return absl::OkStatus();
    const std::optional<Duration> duration = parse_duration(found->second);
    if (!duration || (*duration == Duration{0} && option == "join-timeout")) {
      return conf_error(key, "a duration");
    }
    take_conf(option, *duration, field);
    return absl::OkStatus();
  }

  // An option of its own beats the key that means the same.
  void take_conf(std::string_view option, Duration duration, Duration& field) {
    if (given(option)) {
      if (duration != field) {
        note(cat(origin(option), " ", format_duration(field), " overrides the ",
                 format_duration(duration), " of --rdzv-conf"));
      }
      return;
    }
    field = duration;
    setting(option) = {format_duration(duration), origin("rdzv-conf")};
  }

  absl::Status conf_keep_alive() {
    const auto& conf = options_.rdzv_conf;
    if (!conf.contains("keep_alive_interval") && !conf.contains("keep_alive_max_attempt")) {
      return absl::OkStatus();
    }
    Duration interval = 5s;  // torchrun's defaults
    std::uint32_t attempts = 3;
    if (const auto found = conf.find("keep_alive_interval"); found != conf.end()) {
      const std::optional<Duration> duration = parse_duration(found->second);
      if (!duration || *duration == Duration{0} || *duration > 24h) {
        return conf_error("keep_alive_interval", "a duration up to a day");
      }
      interval = *duration;
    }
    if (const auto found = conf.find("keep_alive_max_attempt"); found != conf.end()) {
      const std::string& text = found->second;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), attempts);
      if (error != std::errc{} || end != text.data() + text.size() || attempts == 0 ||
          attempts > 10000) {
        return conf_error("keep_alive_max_attempt", "a number from 1 to 10000");
      }
    }
    take_conf("node-timeout", interval * attempts, options_.policy.node_timeout);
    return absl::OkStatus();
  }

  absl::Status conf_is_host() {
    const auto found = options_.rdzv_conf.find("is_host");
    if (found == options_.rdzv_conf.end()) return absl::OkStatus();
    static const std::set<std::string_view> kYes{"1", "true", "True", "t", "yes", "y"};
    static const std::set<std::string_view> kNo{"0", "false", "False", "f", "no", "n"};
    if (kYes.contains(found->second)) {
      options_.is_host = true;
    } else if (kNo.contains(found->second)) {
      options_.is_host = false;
    } else {
      return conf_error("is_host", "true or false");
    }
    return absl::OkStatus();
  }

  absl::Status check_node_rank() {
    const std::uint32_t nodes = options_.max_nodes;
    if (options_.standalone || !options_.node_rank || *options_.node_rank < nodes) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(cat(
        origin("node-rank"), " ", *options_.node_rank, " is out of range: ", origin("nnodes"), " ",
        setting("nnodes").text, nodes == 1 ? " has node rank 0 alone" : " has node ranks 0 to ",
        nodes == 1 ? "" : std::to_string(nodes - 1)));
  }

  absl::Status place_server() {
    if (options_.standalone) {
      override_for_standalone();
      return absl::OkStatus();
    }
    const bool several = options_.max_nodes > 1;
    absl::StatusOr<Endpoint> endpoint = Endpoint{};
    std::string from;
    if (!options_.rdzv_endpoint.empty()) {
      from = origin("rdzv-endpoint");
      endpoint = parse_endpoint(options_.rdzv_endpoint, kRendezvousPort);
      for (const char* unused : {"master-addr", "master-port"}) {
        if (given(unused)) {
          note(cat(origin(unused), " is ignored: ", from, " says where the server is"));
        }
      }
    } else if (!options_.master_addr.empty()) {
      from = origin("master-addr");
      endpoint = parse_endpoint(options_.master_addr, kDefaultMasterPort);
      if (endpoint.ok() && options_.master_port) endpoint->port = *options_.master_port;
    } else if (several) {
      return absl::InvalidArgumentError(
          cat(origin("nnodes"), " ", setting("nnodes").text,
              ": a job of more than one node needs --rdzv-endpoint HOST:PORT (the same "
              "on every node)"));
    } else {
      if (given("master-port")) {
        note(cat(origin("master-port"),
                 " is ignored: a job on this node alone needs no server port, and "
                 "workers get MASTER_PORT from --master-port-range"));
      }
      become_standalone();
      return absl::OkStatus();
    }
    if (!endpoint.ok()) {
      return absl::InvalidArgumentError(cat(from, ": ", endpoint.status().message()));
    }
    if (endpoint->host == "0.0.0.0" || endpoint->host == "::") {
      return absl::InvalidArgumentError(
          cat(from, ": ", endpoint->host, " is no address that nodes can reach"));
    }
    if (endpoint->port != 0) {
      options_.endpoint = *std::move(endpoint);
    } else if (several) {
      return absl::InvalidArgumentError(
          cat(from, ": port 0 cannot be found by other nodes; give the port to listen on"));
    } else {
      become_standalone();
    }
    return absl::OkStatus();
  }

  void override_for_standalone() {
    for (const char* name :
         {"rdzv-endpoint", "master-addr", "master-port", "rdzv-id", "node-rank", "nnodes"}) {
      if (!given(name)) continue;
      if (std::string_view(name) == "nnodes" && options_.max_nodes == 1) continue;
      note(cat("--standalone overrides ", origin(name), " ", setting(name).text));
      setting(name) = {std::string(option_table()[option_index(name)].fallback), "default"};
    }
    options_.min_nodes = options_.max_nodes = 1;
    options_.node_rank.reset();
    options_.job_id.clear();
    become_standalone();
  }

  // The id is then made unique by the command; a given one stays.
  void become_standalone() {
    options_.standalone = true;
    if (!given("rdzv-id")) options_.job_id.clear();
    if (!given("standalone")) setting("standalone") = {"1", "detected"};
  }

  absl::Status contradiction(std::string_view a, Duration a_value, std::string_view word,
                             std::string_view b, Duration b_value) {
    return absl::InvalidArgumentError(cat(origin(a), " ", format_duration(a_value), " must be ",
                                          word, " ", origin(b), " ", format_duration(b_value)));
  }

  absl::Status check_times() {
    const JobPolicy& policy = options_.policy;
    if (policy.node_timeout <= policy.heartbeat) {
      return contradiction("node-timeout", policy.node_timeout, "more than", "heartbeat",
                           policy.heartbeat);
    }
    if (policy.reconnect_grace > policy.node_timeout) {
      return contradiction("reconnect-grace", policy.reconnect_grace, "at most", "node-timeout",
                           policy.node_timeout);
    }
    if (policy.node_timeout < 3 * policy.heartbeat) {
      note(cat("--node-timeout ", format_duration(policy.node_timeout),
               " is less than three heartbeats of ", format_duration(policy.heartbeat),
               ": a single late one may cost a node"));
    }
    if (given("last-call") && policy.last_call > policy.join_timeout) {
      note(cat(origin("last-call"), " ", format_duration(policy.last_call), " is longer than ",
               origin("join-timeout"), " ", format_duration(policy.join_timeout),
               options_.min_nodes < options_.max_nodes
                   ? ": with MIN nodes there the job waits longer for more than it would for MIN"
                   : ", and matters only with --nnodes MIN:MAX"));
    }
    absl::Status status = check_server_grace();
    if (status.ok()) status = settle_stop_budget(line_, environment_, options_);
    if (status.ok()) check_stop_times();
    return status;
  }

  // Without effect, and so without fault, where the server is in this process.
  absl::Status check_server_grace() {
    const JobPolicy& policy = options_.policy;
    if (options_.standalone && !given("server-grace")) return absl::OkStatus();
    if (policy.server_grace < 2 * policy.heartbeat) {
      return contradiction("server-grace", policy.server_grace, "at least twice", "heartbeat",
                           policy.heartbeat);
    }
    if (policy.server_grace < policy.reconnect_grace) {
      note(cat(origin("server-grace"), " ", format_duration(policy.server_grace),
               " is shorter than ", origin("reconnect-grace"), " ",
               format_duration(policy.reconnect_grace),
               ": a broken connection already ends the workers"));
    } else if (policy.server_grace < policy.node_timeout) {
      note(cat(origin("server-grace"), " ", format_duration(policy.server_grace),
               " is shorter than ", origin("node-timeout"), " ",
               format_duration(policy.node_timeout),
               ": a node gives its server up sooner than the server gives up a node"));
    }
    return absl::OkStatus();
  }

  void check_stop_times() {
    const Duration grace = options_.policy.stop_grace;
    const Duration left = std::max(Duration{0}, options_.stop_budget - kBudgetReserve);
    const bool detected = setting("stop-budget").source == "detected";
    if (grace <= left || !(given("stop-grace") || (given("stop-budget") && !detected))) return;
    // The budget's own flag says that the default grace is cut; that nothing is left it does not.
    if (!given("stop-grace") && left > Duration{0}) return;
    note(
        cat(given("stop-grace") ? cat(origin("stop-grace"), " ", format_duration(grace), ": ") : "",
            "when this process itself is signalled workers get ",
            left > Duration{0} ? cat("only ", format_duration(left)) : "0s and are killed at once",
            " (", origin("stop-budget"), " ", format_duration(options_.stop_budget), " less ",
            format_duration(kBudgetReserve), ")"));
  }

  absl::Status check_signals() {
    const SignalOrigins origins{.handled = origin("signals-to-handle"),
                                .forwarded = origin("forward-signals"),
                                .forwarded_given = given("forward-signals") &&
                                                   setting("forward-signals").source != "detected"};
    return settle_signals(origins, options_, line_.notes);
  }

  absl::Status check_program() {
    if (options_.module && options_.run_path) {
      return absl::InvalidArgumentError(
          cat(origin("module"), " and ", origin("run-path"), " exclude each other"));
    }
    if (options_.run_path && options_.no_python) {
      note(cat(origin("no-python"), " is ignored: ", origin("run-path"), " is given"));
    }
    if (options_.module && options_.no_python) {
      return absl::InvalidArgumentError(
          cat(origin("module"), " and ", origin("no-python"), " exclude each other"));
    }
    if (line_.program.empty() && !line_.print_config) {
      return absl::InvalidArgumentError("no program given; `muster run --help` shows how");
    }
    if (!line_.program.empty() && line_.program[0].empty()) {
      return absl::InvalidArgumentError("the program's name is empty");
    }
    return absl::OkStatus();
  }

  absl::Status check_output() {
    if (options_.silence_timeout && options_.console == ConsoleChoice::kRaw) {
      return absl::InvalidArgumentError(
          cat(origin("silence-timeout"), " needs to see what workers write, and ",
              origin("console"), " raw gives them this process's own descriptors; use lines"));
    }
    // torchrun's variable says how prefixes look, not that there are any.
    options_.log_prefix_given =
        given("log-prefix") && !setting("log-prefix").source.starts_with("TORCH");
    for (const char* filters : {"duplicate-stdout-filters", "duplicate-stderr-filters"}) {
      if (given(filters) && options_.log_dir == "/dev/null") {
        note(cat(origin(filters), " has no effect: ", origin("log-dir"), " is /dev/null"));
      }
    }
    if (options_.server_events == "-") {
      return absl::InvalidArgumentError(
          cat(origin("server-events"), ": needs a file, '-' is --events only"));
    }
    return absl::OkStatus();
  }

  absl::Status read_chaos() {
    if (options_.chaos.empty()) return absl::OkStatus();
    absl::StatusOr<FaultPlan> plan = read_fault_plan(options_.chaos);
    if (!plan.ok()) {
      return absl::InvalidArgumentError(cat(origin("chaos"), ": ", plan.status().message()));
    }
    options_.faults = *std::move(plan);
    return absl::OkStatus();
  }

  CommandLine& line_;
  const EnvironmentMap& environment_;
  RunOptions options_;
};

}  // namespace

absl::StatusOr<RunOptions> resolve_options(CommandLine& line, const EnvironmentMap& environment) {
  return Resolver(line, environment).run();
}

}  // namespace muster::launcher
