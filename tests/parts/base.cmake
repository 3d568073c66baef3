muster_test(base_test LABEL unit SOURCES unit/base/time_test.cc LINK muster::base)
