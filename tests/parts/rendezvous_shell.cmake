# SPDX-License-Identifier: Apache-2.0
set(dir unit/rendezvous_shell)

# Strand, store and in-process sessions; no gRPC is linked, so ThreadSanitizer can run it.
muster_test(rendezvous_shell_test LABEL unit
  SOURCES ${dir}/answer_pacer_test.cc ${dir}/broker_test.cc ${dir}/harness.cc ${dir}/server_core_test.cc
          ${dir}/server_sessions_test.cc
          ${dir}/store_test.cc ${dir}/strand_clock_test.cc
  LINK muster::rendezvous_shell muster::store_broker)

muster_test(sqlite_journal_test LABEL unit
  SOURCES ${dir}/journal_mark_test.cc ${dir}/sqlite_journal_test.cc
  LINK muster::rendezvous_journal)

muster_test(rendezvous_description_test LABEL unit
  SOURCES ${dir}/description_test.cc LINK muster::rendezvous_records)

# Real gRPC over loopback.
add_library(muster_net_harness STATIC ${dir}/harness.cc ${dir}/net_harness.cc)
target_link_libraries(muster_net_harness PUBLIC muster::rendezvous_server muster::agent_grpc)
muster_test(rendezvous_net_attach_test LABEL integration
  SOURCES ${dir}/net_attach_test.cc LINK muster_net_harness)
muster_test(rendezvous_net_doors_test LABEL integration
  SOURCES ${dir}/net_doors_test.cc LINK muster_net_harness)
muster_test(rendezvous_net_store_test LABEL integration
  SOURCES ${dir}/net_store_test.cc LINK muster_net_harness muster::store_client)
muster_test(rendezvous_net_oversize_test LABEL integration
  SOURCES ${dir}/net_oversize_test.cc LINK muster_net_harness)
