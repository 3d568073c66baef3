// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/variables.h"

#include <catch2/catch.hpp>

#include "launcher/commands/option_table.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

using Lines = std::vector<std::string>;

TEST_CASE("a variable that looks like an option and is none gets a line") {
  CHECK(unknown_variables({{"MUSTER_MAX_RESTART", "3"}}, false) ==
        Lines{"MUSTER_MAX_RESTART is ignored: it is no option; did you mean MUSTER_MAX_RESTARTS?"});
  CHECK(unknown_variables({{"MUSTER_COLOUR", "red"}}, false) ==
        Lines{"MUSTER_COLOUR is ignored: it is no option"});
  CHECK(unknown_variables({{"MUSTER_SHUTDOWN_TIMEOUT", "3"}}, false) ==
        Lines{"MUSTER_SHUTDOWN_TIMEOUT is ignored: it is no option; did you mean "
              "MUSTER_STOP_GRACE?"});
  const EnvironmentMap pet{{"PET_NNODE", "2"}};
  CHECK(unknown_variables(pet, false) ==
        Lines{"PET_NNODE is ignored: torchrun has no such variable; did you mean PET_NNODES?"});
  CHECK(unknown_variables(pet, true).empty());
}

TEST_CASE("variables that somebody reads get none") {
  EnvironmentMap environment{{"PET_N_PROC_PER_NODE", "2"},
                             {"MUSTER_TEST_ROUNDS", "1"},
                             {"MUSTER_GENERATION", "0"},
                             {"MUSTER_STOP_FILE", "x"},
                             {"HOME", "/"},
                             {"PETS", "2"},
                             {"MUSTER", "x"}};
  for (const OptionDef& option : option_table()) {
    environment[muster_variable(option)] = "x";
    environment[pet_variable(option)] = "x";
  }
  CHECK(unknown_variables(environment, false).empty());
}

TEST_CASE("Kubernetes' variables for a service are no options") {
  const EnvironmentMap service{{"MUSTER_SERVICE_HOST", "10.0.0.1"},
                               {"MUSTER_SERVICE_PORT", "29400"},
                               {"MUSTER_SERVICE_PORT_GRPC", "29400"},
                               {"MUSTER_PORT", "tcp://10.0.0.1:29400"},
                               {"MUSTER_PORT_29400_TCP", "tcp://10.0.0.1:29400"},
                               {"MUSTER_PORT_29400_TCP_PROTO", "tcp"},
                               {"MUSTER_PORT_29400_TCP_PORT", "29400"},
                               {"MUSTER_PORT_29400_TCP_ADDR", "10.0.0.1"}};
  CHECK(unknown_variables(service, false).empty());
  CHECK(is_service_variable("MUSTER_MASTER_PORT", "tcp://10.0.0.1:29500"));
  CHECK_FALSE(is_service_variable("MUSTER_MASTER_PORT", "29500"));
  CHECK_FALSE(is_service_variable("MUSTER_MASTER_PORT_RANGE", "1-2"));
  // One that collides with an option's name does not become its value.
  absl::StatusOr<CommandLine> line =
      parse_command_line({"/bin/true"}, {{"MUSTER_MASTER_PORT", "tcp://10.0.0.1:29500"}});
  REQUIRE(line.ok());
  CHECK_FALSE(line->settings[option_index("master-port")].given());
  CHECK(line->notes == Lines{"MUSTER_MASTER_PORT is ignored: it is Kubernetes' for a service"});
}

TEST_CASE("a thousand unknown variables are a few lines") {
  EnvironmentMap many;
  for (int i = 1000; i < 2000; ++i)
    many[cat("MUSTER_Q", i)] = "x";
  const Lines lines = unknown_variables(many, false);
  REQUIRE(lines.size() == 9);
  CHECK(lines.back() == "and 992 more MUSTER_ or PET_ variables are ignored");
}

}  // namespace
}  // namespace muster::launcher
