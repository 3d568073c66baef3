# Scenarios: event files with golden transcripts (scenario/runner.h). An adapter belongs to each
# machine and is compiled in as soon as it is there.
add_library(muster_scenario_runner STATIC scenario/runner.cc scenario/command.cc
            scenario/words.cc)
target_link_libraries(muster_scenario_runner PUBLIC muster::options muster::base)
muster_test(scenario_runner_test LABEL unit SOURCES unit/scenario/runner_test.cc
            LINK muster_scenario_runner)

add_executable(scenario_test scenario/main.cc)
target_link_libraries(scenario_test PRIVATE muster_scenario_runner)
target_compile_definitions(scenario_test PRIVATE MUSTER_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
set_target_properties(scenario_test PROPERTIES
                      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
foreach(machine IN ITEMS rendezvous agent)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/scenario/${machine}_adapter.cc
     AND TARGET muster_${machine}_core)
    target_sources(scenario_test PRIVATE scenario/${machine}_adapter.cc)
    target_link_libraries(scenario_test PRIVATE muster::${machine}_core)
    set(machines_with_scenarios ${machines_with_scenarios} ${machine})
  endif()
endforeach()
if(machines_with_scenarios)
  add_test(NAME scenario_test COMMAND scenario_test)
  set_tests_properties(scenario_test PROPERTIES LABELS scenario TIMEOUT 120)
endif()
