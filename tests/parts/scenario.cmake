# Scenarios: event files with golden transcripts (scenario/runner.h); one adapter a machine.
add_library(muster_scenario_runner STATIC scenario/runner.cc scenario/command.cc
            scenario/words.cc)
target_link_libraries(muster_scenario_runner PUBLIC muster::options muster::base)
muster_test(scenario_runner_test LABEL unit SOURCES unit/scenario/runner_test.cc
            LINK muster_scenario_runner)

add_executable(scenario_test scenario/main.cc scenario/agent_adapter.cc
                             scenario/rendezvous_adapter.cc scenario/rendezvous_commands.cc)
target_link_libraries(scenario_test PRIVATE muster_scenario_runner muster::agent_core
                                            muster::rendezvous_core)
target_compile_definitions(scenario_test PRIVATE MUSTER_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
set_target_properties(scenario_test PROPERTIES
                      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_test(NAME scenario_test COMMAND scenario_test)
set_tests_properties(scenario_test PROPERTIES LABELS scenario TIMEOUT 120)
