# SPDX-License-Identifier: Apache-2.0
muster_test(event_writer_test LABEL unit
  SOURCES unit/agent_shell/event_writer_test.cc
  LINK muster::event_writer muster::json)
muster_test(agent_shell_test LABEL unit
  SOURCES unit/agent_shell/failure_block_test.cc unit/agent_shell/fault_injector_test.cc
          unit/agent_shell/files_test.cc unit/agent_shell/master_port_test.cc
          unit/agent_shell/oom_test.cc unit/agent_shell/progress_test.cc
  LINK muster::agent_shell muster::json)
# The loop and its shells with the server within: no gRPC is linked, so ThreadSanitizer can run it.
muster_test(agent_runner_test LABEL "integration;inprocess"
  SOURCES unit/agent_shell/agent_runner_test.cc unit/agent_shell/rendezvous_link.cc
          unit/agent_shell/runner_fixture.cc
  LINK muster::agent_shell muster::rendezvous_core muster::json)
