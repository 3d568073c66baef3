# SPDX-License-Identifier: Apache-2.0
set(dir unit/rendezvous_shell)

# Strand, store and in-process sessions; no gRPC is linked, so ThreadSanitizer can run it.
muster_test(rendezvous_shell_test LABEL unit
  SOURCES ${dir}/broker_test.cc ${dir}/harness.cc ${dir}/server_core_test.cc
          ${dir}/store_test.cc ${dir}/strand_clock_test.cc
  LINK muster::rendezvous_shell muster::store_broker)
