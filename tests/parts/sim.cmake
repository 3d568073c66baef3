# SPDX-License-Identifier: Apache-2.0
# Both machines in one simulated world (sim/world.h).
if(TARGET muster_rendezvous_core)
  muster_test(sim_test LABEL sim
    SOURCES sim/checks.cc sim/faults.cc sim/node.cc sim/options.cc sim/pair_test.cc
            sim/server.cc sim/trace.cc sim/world.cc
    LINK muster::agent_core muster::rendezvous_core)
endif()
