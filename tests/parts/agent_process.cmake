# SPDX-License-Identifier: Apache-2.0
set(dir unit/agent_shell_process)

muster_test(agent_process_unit LABEL unit
  SOURCES ${dir}/exec_error_test.cc ${dir}/line_filter_test.cc ${dir}/line_splitter_test.cc
          ${dir}/output_spool_test.cc ${dir}/rotating_file_test.cc ${dir}/tail_buffer_test.cc
  LINK muster::agent_process)

# What tests start as a worker: it shows what it was given, or misbehaves on request.
add_executable(agent_process_probe ${dir}/probe.cc)
target_link_libraries(agent_process_probe PRIVATE muster::options)
set_target_properties(agent_process_probe PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

# Real processes, but no channel: ThreadSanitizer runs them too.
function(agent_process_test name source)
  muster_test(${name} LABEL "integration;inprocess" SOURCES ${dir}/${source} ${dir}/harness.cc
              LINK muster::agent_process)
  target_compile_definitions(${name} PRIVATE PROBE="$<TARGET_FILE:agent_process_probe>")
  add_dependencies(${name} agent_process_probe)
endfunction()
agent_process_test(agent_process_spawn spawn_test.cc)
agent_process_test(agent_process_worker worker_test.cc)
target_sources(agent_process_worker PRIVATE ${dir}/end_batch_test.cc)
agent_process_test(agent_process_console console_test.cc)
agent_process_test(agent_process_console_logs console_logs_test.cc)
agent_process_test(agent_process_stdin stdin_test.cc)
agent_process_test(agent_process_guardian guardian_test.cc)
agent_process_test(agent_process_cgroup cgroup_test.cc)
agent_process_test(agent_process_cycles cycles_test.cc)
agent_process_test(agent_process_unkillable unkillable_test.cc)
target_sources(agent_process_unkillable PRIVATE ${dir}/freezer.cc)
