# SPDX-License-Identifier: Apache-2.0
muster_test(agent_core_test LABEL unit
  SOURCES unit/agent_core/device_memory_test.cc unit/agent_core/devices_test.cc
          unit/agent_core/end_order_test.cc unit/agent_core/traceback_watch_test.cc unit/agent_core/end_test.cc unit/agent_core/environment_test.cc
          unit/agent_core/exit_status_test.cc unit/agent_core/guard_patience_test.cc unit/agent_core/hang_test.cc
          unit/agent_core/kernel_log_test.cc
          unit/agent_core/line_prefix_test.cc unit/agent_core/lines_test.cc
          unit/agent_core/link_test.cc unit/agent_core/round_test.cc
          unit/agent_core/signal_test.cc
          unit/agent_core/stop_ladder_test.cc unit/agent_core/suspend_test.cc unit/agent_core/trace_test.cc unit/agent_core/walk_test.cc
          unit/agent_core/work_test.cc
  LINK muster::agent_core)
