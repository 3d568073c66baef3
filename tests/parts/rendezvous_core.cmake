muster_test(rendezvous_core_test LABEL unit
            SOURCES unit/rendezvous_core/admission_test.cc unit/rendezvous_core/address_test.cc
                    unit/rendezvous_core/budget_test.cc unit/rendezvous_core/faults_test.cc
                    unit/rendezvous_core/first_cause_test.cc unit/rendezvous_core/ranks_test.cc
                    unit/rendezvous_core/machine_test.cc unit/rendezvous_core/quarantine_test.cc
                    unit/rendezvous_core/random_walk_test.cc unit/rendezvous_core/recoveries_test.cc
                    unit/rendezvous_core/world.cc sim/naive.cc
            LINK muster::rendezvous_core)
