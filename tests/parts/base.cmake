muster_test(base_test LABEL unit SOURCES unit/base/failure_test.cc unit/base/json_mistake_test.cc
            unit/base/nearest_test.cc unit/base/time_test.cc
            LINK muster::base muster::json)
