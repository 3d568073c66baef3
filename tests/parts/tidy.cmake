find_program(MUSTER_PYTHON python3 REQUIRED)
add_test(NAME tidy_rules COMMAND ${MUSTER_PYTHON} ${CMAKE_SOURCE_DIR}/tests/tidy/tidy.py)
add_test(NAME tidy_self_test
         COMMAND ${MUSTER_PYTHON} ${CMAKE_SOURCE_DIR}/tests/tidy/tidy.py --self-test)
set_tests_properties(tidy_rules tidy_self_test PROPERTIES LABELS tidy TIMEOUT 60)
