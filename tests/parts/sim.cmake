# SPDX-License-Identifier: Apache-2.0
# Both machines in one simulated world (sim/world.h).
if(TARGET muster_rendezvous_core)
  add_library(muster_sim STATIC sim/checks.cc sim/checks_agents.cc sim/checks_memory.cc sim/crashes.cc
              sim/faults.cc sim/minimise.cc sim/model.cc sim/naive.cc sim/network.cc sim/node.cc
              sim/options.cc sim/planted.cc sim/planted_rules.cc sim/processes.cc sim/reasons.cc
              sim/server.cc sim/trace.cc sim/world.cc)
  target_link_libraries(muster_sim PUBLIC muster::agent_core muster::rendezvous_core)
  # For scripts/soak and for a look at one seed.
  add_executable(sim sim/main.cc)
  target_link_libraries(sim PRIVATE muster_sim)
  set_target_properties(sim PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  muster_test(sim_test LABEL sim TIMEOUT 300 SOURCES sim/pair_test.cc LINK muster_sim)
  muster_test(sim_planted_test LABEL sim TIMEOUT 300 SOURCES sim/planted_test.cc LINK muster_sim)
  # The same with the real journal beside it.
  muster_test(sim_journal_test LABEL sim
    SOURCES sim/journal_test.cc LINK muster_sim muster::rendezvous_journal)
  muster_test(property_test LABEL unit LINK muster_sim
    SOURCES property/books_test.cc property/forming_test.cc property/rendezvous_test.cc)
endif()
