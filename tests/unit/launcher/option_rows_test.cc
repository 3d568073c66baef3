// SPDX-License-Identifier: Apache-2.0
//
// Every option of `muster run`, one row each: what users' scripts and pods rely on. The rows are
// written down here once more, with torchrun's names and variables as its manual has them, so that
// one that is renamed, loses its variable or its effect is noticed.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "launcher/commands/option_help.h"
#include "launcher/commands/option_table.h"
#include "tests/unit/launcher/resolved.h"

namespace muster::launcher {
namespace {

using O = RunOptions;

struct Row {
  std::string name;      // contracts.md, section 2
  std::string torchrun;  // notes on torchrun, 1.1; empty: Muster's own
  std::string value;     // one that is not the default; empty: a switch
  bool (*holds)(const O&);
  Words with{};  // what the value needs to make sense
};

const Words kServer{"--rdzv-endpoint=h:1"};

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows{
      {"nnodes", "nnodes", "2:4", [](const O& o) { return o.min_nodes == 2 && o.max_nodes == 4; },
       kServer},
      {"nproc-per-node", "nproc-per-node", "4", [](const O& o) { return o.nproc == "4"; }},
      {"rdzv-id", "rdzv-id", "job7", [](const O& o) { return o.job_id == "job7"; }},
      {"node-name", "", "alpha", [](const O& o) { return o.node_name == "alpha"; }},
      {"node-rank",
       "node-rank",
       "3",
       [](const O& o) { return o.node_rank == 3U; },
       {"--nnodes=4", "--rdzv-endpoint=h:1"}},
      {"scheduler", "", "none", [](const O& o) { return !o.scheduler_index; }},
      {"standalone",
       "standalone",
       "",
       [](const O& o) { return o.standalone && !o.endpoint && o.max_nodes == 1; },
       {"--nnodes=2", "--rdzv-endpoint=h:1"}},
      {"rdzv-endpoint", "rdzv-endpoint", "host7",
       [](const O& o) {
         return o.endpoint == Endpoint{"host7", 29400};
       }},
      {"master-addr", "master-addr", "host8",
       [](const O& o) {
         return o.endpoint == Endpoint{"host8", 29500};
       }},
      {"master-port",
       "master-port",
       "1234",
       [](const O& o) {
         return o.endpoint == Endpoint{"host9", 1234};
       },
       {"--master-addr=host9"}},
      {"rdzv-backend", "rdzv-backend", "c10d", [](const O& o) { return !o.standalone; }, kServer},
      {"rdzv-conf",
       "rdzv-conf",
       "join_timeout=77,is_host=0",
       [](const O& o) { return o.policy.join_timeout == 77s && o.is_host == false; },
       {"--rdzv-endpoint=h:1", "--last-call=5"}},
      {"advertise-addr", "local-addr", "10.0.0.7",
       [](const O& o) { return o.advertise_addr == "10.0.0.7"; }},
      {"master-port-range", "", "100-200",
       [](const O& o) { return o.master_port_low == 100 && o.master_port_high == 200; }},
      {"master-port-hold", "", "no", [](const O& o) { return !o.master_port_hold; }},
      {"http", "", ":8080",
       [](const O& o) {
         return o.http == Endpoint{"", 8080};
       }},
      {"metrics-addr", "", "10.0.0.1:9",
       [](const O& o) {
         return o.metrics_addr == Endpoint{"10.0.0.1", 9};
       }},
      {"token-file", "", "/run/token", [](const O& o) { return o.token_file == "/run/token"; }},
      {"tls-cert", "", "/run/a.pem", [](const O& o) { return o.tls_cert == "/run/a.pem"; }},
      {"tls-key", "", "/run/a.key", [](const O& o) { return o.tls_key == "/run/a.key"; }},
      {"tls-ca", "", "/run/ca.pem", [](const O& o) { return o.tls_ca == "/run/ca.pem"; }},
      {"linger", "", "", [](const O& o) { return o.policy.linger; }},

      {"module", "module", "", [](const O& o) { return o.module; }},
      {"no-python", "no-python", "", [](const O& o) { return o.no_python; }},
      {"run-path", "run-path", "", [](const O& o) { return o.run_path; }},
      {"python", "", "/opt/python", [](const O& o) { return o.python == "/opt/python"; }},
      {"pass-local-rank", "", "", [](const O& o) { return o.pass_local_rank; }},
      {"no-substitute", "", "", [](const O& o) { return o.no_substitute; }},
      {"role", "role", "trainer", [](const O& o) { return o.role == "trainer"; }},
      {"devices", "", "1,0", [](const O& o) { return o.devices == "1,0"; }},
      {"virtual-local-rank", "virtual-local-rank", "",
       [](const O& o) { return o.virtual_local_rank; }},
      {"numa-binding", "numa-binding", "exclusive",
       [](const O& o) { return o.numa_binding == NumaBinding::kExclusive; }},
      {"keep-fds", "", "5,3",
       [](const O& o) {
         return o.keep_fds == std::vector<int>{3, 5};
       }},
      {"inherit", "", "", [](const O& o) { return o.inherit; }},

      {"max-restarts", "max-restarts", "3", [](const O& o) { return o.policy.max_restarts == 3; }},
      {"max-node-losses", "", "7", [](const O& o) { return o.policy.max_node_losses == 7; }},
      {"max-no-progress", "", "5", [](const O& o) { return o.policy.max_no_progress == 5; }},
      {"spares", "", "none", [](const O& o) { return o.policy.max_spares == 0U; }},
      {"quarantine", "", "3/1h,10m",
       [](const O& o) {
         return o.policy.quarantine.causes == 3 && o.policy.quarantine.window == 3600s &&
                o.policy.quarantine.cooldown == 600s;
       }},
      {"hang-timeout", "", "20s,90s",
       [](const O& o) { return o.hang_timeout == 20s && o.hang_first == 90s; }},
      {"silence-timeout", "", "40s", [](const O& o) { return o.silence_timeout == 40s; }},
      {"restart-backoff", "", "12s",
       [](const O& o) { return o.policy.restart_backoff_max == 12s; }},
      {"exit-code", "", "flat", [](const O& o) { return o.flat_exit_code; }},

      {"stop-grace", "shutdown-timeout", "9", [](const O& o) { return o.policy.stop_grace == 9s; }},
      {"stop-budget", "", "50s", [](const O& o) { return o.stop_budget == 50s; }},
      {"pod-grace", "", "60s", [](const O& o) { return o.pod_grace == 60s; }},
      {"stop-signal", "", "INT", [](const O& o) { return o.stop_signal == SIGINT; }},
      {"stop-scope", "", "group", [](const O& o) { return o.stop_whole_group; }},
      {"forward-signals", "", "USR2",
       [](const O& o) { return o.forward_signals == std::vector<int>{SIGUSR2}; }},
      {"signals-to-handle", "signals-to-handle", "SIGUSR1",
       [](const O& o) { return o.more_stop_signals == std::vector<int>{SIGUSR1}; }},
      {"exit-grace", "", "4s", [](const O& o) { return o.exit_grace == 4s; }},

      {"join-timeout", "", "88s", [](const O& o) { return o.policy.join_timeout == 88s; }},
      {"last-call", "", "3s", [](const O& o) { return o.policy.last_call == 3s; }},
      {"grow", "", "never", [](const O& o) { return o.policy.grow == Grow::kNever; }},
      {"grow-interval", "", "7s", [](const O& o) { return o.policy.grow_interval == 7s; }},
      {"fence", "", "strict", [](const O& o) { return o.policy.fence == Fence::kStrict; }},
      {"heartbeat", "", "2s", [](const O& o) { return o.policy.heartbeat == 2s; }},
      {"node-timeout", "", "20s", [](const O& o) { return o.policy.node_timeout == 20s; }},
      {"reconnect-grace", "", "750ms",
       [](const O& o) { return o.policy.reconnect_grace == 750ms; }},
      {"server-grace", "", "99s", [](const O& o) { return o.policy.server_grace == 99s; }},
      {"recovery-window", "", "31s", [](const O& o) { return o.policy.recovery_window == 31s; }},

      {"stdin", "", "all", [](const O& o) { return o.stdin_choice == StdinChoice::kAll; }},
      {"console", "", "rank0", [](const O& o) { return o.console == ConsoleChoice::kRank0; }},
      {"log-prefix", "", "<{rank}>", [](const O& o) { return o.log_prefix == "<{rank}>"; }},
      {"local-ranks-filter", "local-ranks-filter", "0,2",
       [](const O& o) {
         return o.shown_local_ranks == std::set<std::uint32_t>{0, 2};
       }},
      {"log-dir", "log-dir", "/logs", [](const O& o) { return o.log_dir == "/logs"; }},
      {"termination-log", "", "/tl", [](const O& o) { return o.termination_log == "/tl"; }},
      {"redirects", "redirects", "0:3,1:1",
       [](const O& o) { return o.redirects.of(0) == 3 && o.redirects.of(1) == 1; }},
      {"tee", "tee", "2", [](const O& o) { return o.tee.of(5) == 2; }},
      {"duplicate-stdout-filters", "duplicate-stdout-filters", "loss,acc",
       [](const O& o) {
         return o.stdout_filters == std::vector<std::string>{"loss", "acc"};
       }},
      {"duplicate-stderr-filters", "duplicate-stderr-filters", "a,,b",
       [](const O& o) { return o.stderr_filters == std::vector<std::string>{"a,b"}; }},
      {"log-rotate", "", "10MB,2",
       [](const O& o) { return o.log_rotation.bytes == 10'000'000 && o.log_rotation.kept == 2; }},
      {"log-keep", "", "3", [](const O& o) { return o.log_keep.runs == 3U; }},
      {"events", "", "/ev", [](const O& o) { return o.events == "/ev"; }},
      {"server-events", "", "/se", [](const O& o) { return o.server_events == "/se"; }},
      {"log-level", "", "debug", [](const O& o) { return o.log_level == LogLevel::kDebug; }},
      {"quiet", "", "", [](const O& o) { return o.quiet; }},

      {"chaos", "", R"([{"do":"kill","when":{"after":"1s"},"on":{"rank":0}}])",
       [](const O& o) { return !o.faults.faults.empty(); }},
      {"chaos-strict", "", "", [](const O& o) { return o.chaos_strict; }},
  };
  return kRows;
}

std::string upper(std::string text) {
  for (char& c : text)
    c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string underscored(std::string text) {
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

Result with(const Row& row, Words words, const EnvironmentMap& environment = {}) {
  words.insert(words.begin(), row.with.begin(), row.with.end());
  return resolve(std::move(words), environment);
}

void check(const Row& row, const Result& result, const std::string& where) {
  INFO("--" << row.name << " as " << where << ": " << result.error);
  REQUIRE(result.ok);
  CHECK(row.holds(result.options));
  CHECK(source(result, row.name) == where);
  const auto json = nlohmann::json::parse(print_config(result.line, result.options, 1, {"x"}));
  CHECK(json["options"][row.name]["source"] == where);
}

// `name` as a flag, in all its spellings.
void check_flag(const Row& row, const std::string& name) {
  for (const std::string& dashed : {"--" + name, "--" + underscored(name)}) {
    if (row.value.empty()) {
      check(row, with(row, {dashed}), "flag");
    } else {
      check(row, with(row, {dashed, row.value}), "flag");
      check(row, with(row, {dashed + "=" + row.value}), "flag");
    }
  }
}

}  // namespace

TEST_CASE("each option, by flag and by variable") {
  for (const Row& row : rows()) {
    const std::string value = row.value.empty() ? "1" : row.value;
    INFO("--" << row.name);
    const Result without = with(row, {});
    REQUIRE(without.ok);
    const bool sets_nothing = row.name == "scheduler" || row.name == "rdzv-backend";
    CHECK(row.holds(without.options) == sets_nothing);
    check_flag(row, row.name);
    check(row, with(row, {}, {{"MUSTER_" + upper(row.name), value}}), "MUSTER_" + upper(row.name));
    if (row.torchrun.empty()) continue;
    check_flag(row, row.torchrun);
    if (row.name == "numa-binding") continue;  // torchrun has no variable for it
    const std::string pet = "PET_" + upper(row.torchrun);
    check(row, with(row, {}, {{pet, value}}), pet);
  }
}

TEST_CASE("no option is without its row") {
  for (const OptionDef& option : option_table()) {
    if (option.standing != Standing::kHere) continue;
    INFO(option.name);
    const auto row = std::find_if(rows().begin(), rows().end(),
                                  [&](const Row& one) { return one.name == option.name; });
    REQUIRE(row != rows().end());
    CHECK((option.kind == OptionKind::kSwitch) == row->value.empty());
  }
}

TEST_CASE("what torchrun takes and nothing follows from is taken, with a line") {
  for (const std::string name : {"start-method", "monitor-interval", "event-log-handler"}) {
    INFO(name);
    for (const Words& words : {Words{"--" + name, "x"}, Words{"--" + underscored(name) + "=x"}})
      CHECK(has_note(resolve(words), "--" + name));
    const std::string pet = "PET_" + upper(name);
    CHECK(has_note(resolve({}, {{pet, "x"}}), pet));
  }
  CHECK(has_note(resolve({"--logs-specs", "x"}), "--logs-specs"));
  CHECK(has_note(resolve({"--use-env"}), "--use-env"));
}

TEST_CASE("defaults are those that users were promised") {
  const O o = resolve({}).options;
  CHECK(o.policy.max_restarts == 0);
  CHECK(o.policy.max_node_losses == 3);
  CHECK(o.policy.restart_backoff_max == 30s);
  CHECK(o.policy.max_no_progress == 0);
  CHECK(o.policy.stop_grace == 30s);
  CHECK(o.stop_budget == 30s);
  CHECK_FALSE(o.stop_signal);
  CHECK_FALSE(o.stop_whole_group);
  CHECK(o.forward_signals == std::vector<int>{SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH});
  CHECK(o.policy.heartbeat == 1s);
  CHECK(o.policy.node_timeout == 10s);
  CHECK(o.policy.reconnect_grace == 500ms);
  CHECK(o.policy.recovery_window == 30s);
  CHECK(o.policy.server_grace == 60s);
  CHECK(o.policy.fence == Fence::kFast);
  CHECK(o.policy.join_timeout == 600s);
  CHECK(o.policy.last_call == 30s);
  CHECK(o.policy.grow == Grow::kNow);
  CHECK(o.policy.grow_interval == 60s);
  CHECK_FALSE(o.hang_timeout);
  CHECK_FALSE(o.silence_timeout);
  CHECK_FALSE(o.policy.max_spares);
  CHECK(o.master_port_low == 20000);
  CHECK(o.master_port_high == 28999);
  CHECK(o.master_port_hold);
  CHECK(o.stdin_choice == StdinChoice::kLocalRank);
  CHECK(o.stdin_local_rank == 0);
  CHECK(o.console == ConsoleChoice::kAuto);
  CHECK(o.log_level == LogLevel::kWarning);
  CHECK_FALSE(o.flat_exit_code);
  CHECK(o.nproc == "1");
  CHECK(o.role == "default");
  CHECK(resolve({"--hang-timeout=6s"}).options.hang_first == 60s);
}

}  // namespace muster::launcher
