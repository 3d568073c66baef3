# SPDX-License-Identifier: Apache-2.0
# Fuzz targets. With MUSTER_SANITIZE=fuzzer-no-link,… (preset fuzz) each is a libFuzzer program;
# otherwise it replays its corpus and a few thousand made inputs, which is a test.
set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus)
add_custom_target(fuzz)

# muster_fuzz(NAME ROUNDS N SOURCES … LINK …)
function(muster_fuzz name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "ROUNDS" "SOURCES;LINK")
  add_executable(fuzz_${name} ${ARG_SOURCES})
  target_link_libraries(fuzz_${name} PRIVATE muster::options ${ARG_LINK})
  set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_dependencies(fuzz fuzz_${name})
  if(MUSTER_SANITIZE MATCHES "fuzzer")
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    return()
  endif()
  target_sources(fuzz_${name} PRIVATE fuzz/replay.cc)
  add_test(NAME fuzz_${name}_test COMMAND fuzz_${name} ${corpus}/${name} --rounds ${ARG_ROUNDS})
  set_tests_properties(fuzz_${name}_test PROPERTIES LABELS unit TIMEOUT 120)
endfunction()

muster_fuzz(wire ROUNDS 10000
            SOURCES fuzz/wire.cc fuzz/bend.cc fuzz/border_rules.cc unit/wire/random_messages.cc
            LINK muster::rendezvous_records muster::wire)
set(world fuzz/bend.cc fuzz/server_judge.cc fuzz/server_world.cc unit/wire/random_messages.cc)
muster_fuzz(record ROUNDS 3000
            SOURCES fuzz/record.cc ${world}
            LINK muster::rendezvous_records muster::wire)
muster_fuzz(rendezvous ROUNDS 3000
            SOURCES fuzz/rendezvous.cc ${world}
            LINK muster::rendezvous_records muster::wire)
muster_fuzz(agent ROUNDS 10000
            SOURCES fuzz/agent.cc fuzz/agent_judge.cc fuzz/bend.cc unit/wire/random_messages.cc
            LINK muster::agent_core muster::wire)
