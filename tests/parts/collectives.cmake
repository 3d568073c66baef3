muster_test(collectives_test LABEL unit SOURCES unit/collectives/ops_test.cc
            LINK muster::collectives_tcp ${MUSTER_GLOO})
