# Real processes. Each file is a program of Python's unittest over tests/integration/harness.py.
find_program(MUSTER_PYTHON python3 REQUIRED)
function(muster_integration name label timeout)
  add_test(NAME ${name}
           COMMAND ${MUSTER_PYTHON} ${CMAKE_SOURCE_DIR}/tests/integration/${name}.py)
  set_tests_properties(${name} PROPERTIES LABELS "${label}" TIMEOUT ${timeout}
    ENVIRONMENT "MUSTER_BIN_DIR=${CMAKE_BINARY_DIR}/bin;PYTHONDONTWRITEBYTECODE=1")
endfunction()

muster_integration(standalone_test integration 300)
muster_integration(stop_test integration 300)
muster_integration(nothing_left_test integration 300)
muster_integration(limits_test integration 300)
muster_integration(first_cause_test integration 300)
muster_integration(chaos_test integration 300)
muster_integration(bad_input_test integration 300)
muster_integration(two_nodes_test integration 600)
muster_integration(elastic_test integration 300)
muster_integration(operate_test integration 300)
muster_integration(saturation_test "integration;slow" 300)
muster_integration(server_restart_test integration 600)
muster_integration(silence_test integration 600)
muster_integration(training_test "integration;slow" 900)
muster_integration(cuda_training_test "integration;slow" 900)
