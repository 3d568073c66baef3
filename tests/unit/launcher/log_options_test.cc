// SPDX-License-Identifier: Apache-2.0
//
// Options about workers' lines and log files.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "launcher/commands/option_help.h"
#include "launcher/commands/options.h"
#include "tests/unit/launcher/resolved.h"

namespace muster::launcher {

TEST_CASE("every console mode is one of this version") {
  CHECK(resolve({"--console", "pty"}).options.console == ConsoleChoice::kPty);
  CHECK(resolve({}, {{"MUSTER_CONSOLE", "pty"}}).options.console == ConsoleChoice::kPty);
  CHECK(error_of({"--console", "tty"}) ==
        "--console: 'tty' is not one of auto, prefixed, lines, raw, pty, rank0, none");
}

TEST_CASE("how a prefixed line begins") {
  CHECK(resolve({}).options.log_prefix == "[{rank}] ");
  CHECK_FALSE(resolve({}).options.log_prefix_given);
  for (const Result& result : {resolve({"--log-prefix", "{node}:{rank} "}),
                               resolve({}, {{"MUSTER_LOG_PREFIX", "{node}:{rank} "}})}) {
    REQUIRE(result.ok);
    CHECK(result.options.log_prefix == "{node}:{rank} ");
    CHECK(result.options.log_prefix_given);
  }
  CHECK(resolve({"--log-prefix="}).options.log_prefix_given);
  CHECK(error_of({"--log-prefix", "{role}"}) ==
        "--log-prefix: '{role}': {role} is not one of {rank}, {local_rank}, {node}, {job}, "
        "{generation}");
  CHECK(error_of({}, {{"MUSTER_LOG_PREFIX", "{rank"}}) ==
        "MUSTER_LOG_PREFIX: '{rank': has a lone '{' ({{ stands for it)");
}

TEST_CASE("torchrun's prefix says how lines begin, not whether") {
  const EnvironmentMap torchrun{{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "${role_name}/$rank:"}};
  const Result result = resolve({}, torchrun);
  REQUIRE(result.ok);
  CHECK(result.options.log_prefix == "default/{rank}:");
  CHECK_FALSE(result.options.log_prefix_given);
  CHECK(result.line.notes.empty());
  CHECK(source(result, "log-prefix") == "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  const Result own = resolve({"--log-prefix", "{rank}|"}, torchrun);
  CHECK(own.options.log_prefix == "{rank}|");
  CHECK(own.options.log_prefix_given);
  // Meant for the launcher outside.
  EnvironmentMap nested = torchrun;
  nested["MUSTER_GENERATION"] = "0";
  CHECK(resolve({}, nested).options.log_prefix == "[{rank}] ");
  CHECK(error_of({}, {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "a\nb"}}) ==
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE: 'a\nb': contains a line end");
}

TEST_CASE("whose output is shown") {
  CHECK(resolve({}).options.shown_local_ranks.empty());
  const std::set<std::uint32_t> some{0, 12};
  CHECK(resolve({"--local-ranks-filter", "12,0,12"}).options.shown_local_ranks == some);
  CHECK(resolve({"--local_ranks_filter=0, 12"}).options.shown_local_ranks == some);
  CHECK(resolve({}, {{"PET_LOCAL_RANKS_FILTER", "0,12"}}).options.shown_local_ranks == some);
  CHECK(resolve({}, {{"PET_LOCAL_RANKS_FILTER", ""}}).options.shown_local_ranks.empty());
  for (const char* wrong : {"0,", "a", "-1", "0-3", "0;1"}) {
    CHECK(error_of({cat("--local-ranks-filter=", wrong)}) ==
          cat("--local-ranks-filter: '", wrong, "' is not a list of local ranks like 0,1"));
  }
}

TEST_CASE("which lines are copied") {
  CHECK(resolve({}).options.stdout_filters.empty());
  CHECK(resolve({"--duplicate-stdout-filters", "loss, step 1"}).options.stdout_filters ==
        Words{"loss", " step 1"});
  CHECK(resolve({"--duplicate-stderr-filters", "a,,b,c"}).options.stderr_filters ==
        Words{"a,b", "c"});
  CHECK(resolve({"--duplicate-stderr-filters", ",,"}).options.stderr_filters == Words{","});
  CHECK(resolve({}, {{"PET_DUPLICATE_STDERR_FILTERS", "x"}}).options.stderr_filters == Words{"x"});
  for (const char* wrong : {",", "a,", "a,,,", ",a"}) {
    CHECK(error_of({cat("--duplicate-stdout-filters=", wrong)}) ==
          cat("--duplicate-stdout-filters: '", wrong,
              "' has an empty part, which every line contains (,, is a comma itself)"));
  }
  CHECK(has_note(resolve({"--duplicate-stdout-filters=a", "--log-dir=/dev/null"}),
                 "--duplicate-stdout-filters has no effect: --log-dir is /dev/null"));
}

TEST_CASE("when a log file is begun anew") {
  using agent::LogRotation;
  CHECK(resolve({}).options.log_rotation == LogRotation{0, 3});
  CHECK(resolve({"--log-rotate", "off"}).options.log_rotation == LogRotation{0, 3});
  CHECK(resolve({"--log-rotate", "100MB"}).options.log_rotation == LogRotation{100'000'000, 3});
  CHECK(resolve({"--log-rotate=1.5GiB,5"}).options.log_rotation == LogRotation{3ULL << 29, 5});
  CHECK(resolve({"--log-rotate=1KB,0"}).options.log_rotation == LogRotation{1000, 0});
  CHECK(resolve({}, {{"MUSTER_LOG_ROTATE", "2TiB"}}).options.log_rotation ==
        LogRotation{2ULL << 40, 3});
  for (const char* wrong : {"100", "1M", "MB", "-1MB", "1MB,", ",3", "1 MB", "1e3MB", "nanMB"}) {
    INFO(wrong);
    CHECK(error_of({cat("--log-rotate=", wrong)}).find("is not off or SIZE[,N], like 100MB") !=
          std::string::npos);
  }
  CHECK(error_of({"--log-rotate=1MB,1001"}).ends_with("with N up to 1000"));
  CHECK(error_of({"--log-rotate=0.9KB"}) == "--log-rotate: must be at least 1KB");
}

TEST_CASE("which runs' logs stay") {
  const auto keep_of = [](const std::string& text) {
    const Result result = resolve({cat("--log-keep=", text)});
    CHECK(result.ok);
    return result.options.log_keep;
  };
  CHECK(resolve({}).options.log_keep.runs == 20U);
  CHECK(keep_of("all").all());
  CHECK(keep_of("5").runs == 5U);
  CHECK(keep_of("7d").age == 168h);
  CHECK(keep_of("0.5d").age == 12h);
  CHECK(keep_of("48h").age == 48h);
  CHECK(keep_of("90m").age == 90min);
  CHECK(keep_of("10GB").bytes == 10'000'000'000ULL);
  CHECK(keep_of("1KiB").bytes == 1024U);
  CHECK_FALSE(keep_of("1KiB").runs);
  CHECK(error_of({"--log-keep", "0"}) ==
        "--log-keep: 0 would keep no run, not even this one; all keeps every");
  CHECK(error_of({"--log-keep", "0d"}) == "--log-keep: must be more than zero");
  for (const char* wrong : {"none", "-1", "1.5", "7w", "d", "GB", "10G", "99999d"}) {
    INFO(wrong);
    CHECK(error_of({cat("--log-keep=", wrong)}) ==
          cat("--log-keep: '", wrong,
              "' is not a number of runs, an age like 7d or 48h, a size like 10GB, or all"));
  }
}

TEST_CASE("print-config has the options about logs with their sources") {
  const EnvironmentMap environment{{"PET_LOCAL_RANKS_FILTER", "1"},
                                   {"MUSTER_LOG_KEEP", "7d"},
                                   {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "$rank "}};
  const Result result =
      resolve({"--print-config", "--log-rotate=1MB", "--console=pty"}, environment);
  REQUIRE(result.ok);
  const auto options =
      nlohmann::json::parse(print_config(result.line, result.options, 1, {"/bin/true"}))["options"];
  const std::tuple<const char*, const char*, const char*> rows[] = {
      {"local-ranks-filter", "1", "PET_LOCAL_RANKS_FILTER"},
      {"log-keep", "7d", "MUSTER_LOG_KEEP"},
      {"log-prefix", "{rank} ", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"},
      {"log-rotate", "1MB", "flag"},
      {"console", "pty", "flag"}};
  for (const auto& [name, value, from] : rows) {
    INFO(name);
    CHECK(options[name]["value"] == value);
    CHECK(options[name]["source"] == from);
  }
  CHECK(options["duplicate-stdout-filters"]["value"].is_null());
}

}  // namespace muster::launcher
