# SPDX-License-Identifier: Apache-2.0
muster_test(event_writer_test LABEL unit
  SOURCES unit/agent_shell/event_writer_test.cc
  LINK muster::event_writer muster::json)
