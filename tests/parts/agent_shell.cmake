# SPDX-License-Identifier: Apache-2.0
muster_test(event_writer_test LABEL unit
  SOURCES unit/agent_shell/event_writer_test.cc
  LINK muster::event_writer muster::json)
muster_test(agent_shell_test LABEL unit
  SOURCES unit/agent_shell/failure_block_test.cc unit/agent_shell/fault_injector_test.cc
          unit/agent_shell/files_test.cc unit/agent_shell/kernel_log_reader_test.cc
          unit/agent_shell/log_keeper_test.cc
          unit/agent_shell/master_port_test.cc unit/agent_shell/termination_log_test.cc
          unit/agent_shell/oom_test.cc unit/agent_shell/progress_test.cc
          unit/agent_shell/stack_capture_test.cc
  LINK muster::agent_shell muster::json)
# A libnvidia-ml.so.1 without a GPU.
add_library(muster_fake_nvml SHARED support/fake_nvml/nvml.cc)
target_link_libraries(muster_fake_nvml PRIVATE muster::options)
set_target_properties(muster_fake_nvml PROPERTIES OUTPUT_NAME nvidia-ml SOVERSION 1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/fake_nvml)
function(muster_with_fake_nvml name)
  add_dependencies(${name} muster_fake_nvml)
  target_compile_definitions(${name} PRIVATE
    MUSTER_FAKE_NVML="${CMAKE_BINARY_DIR}/tests/fake_nvml/libnvidia-ml.so.1")
endfunction()
muster_test(device_watch_test LABEL unit
  SOURCES unit/agent_shell/device_watch_test.cc LINK muster::agent_shell)
muster_with_fake_nvml(device_watch_test)

# The loop and its shells with the server within: no gRPC is linked, so ThreadSanitizer can run it.
muster_test(agent_runner_test LABEL "integration;inprocess"
  SOURCES unit/agent_shell/agent_runner_test.cc unit/agent_shell/device_runner_test.cc
          unit/agent_shell/rendezvous_link.cc unit/agent_shell/runner_fixture.cc
  LINK muster::agent_shell muster::rendezvous_core muster::json)
muster_with_fake_nvml(agent_runner_test)
