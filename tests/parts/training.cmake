# SPDX-License-Identifier: Apache-2.0
muster_test(data_test LABEL unit SOURCES unit/training/corpus_test.cc unit/training/dataset_test.cc
            LINK muster::data)
# Thousands of crashes, each a process: slow under sanitizers.
muster_test(checkpoint_test LABEL unit TIMEOUT 600
            SOURCES unit/training/checkpoint_test.cc unit/training/checkpoint_crash_test.cc
                    unit/training/checkpoint_parts_test.cc
                    unit/training/manifest_test.cc
            LINK muster::checkpoint muster::data)
muster_test(train_config_test LABEL unit SOURCES unit/training/config_test.cc
            LINK muster::train_config)
muster_test(train_parts_test LABEL unit
            SOURCES unit/training/overseer_test.cc unit/training/parts_test.cc LINK muster::train)
muster_test(trainer_test LABEL "unit;onednn"
            SOURCES unit/training/trainer_faults_test.cc unit/training/trainer_test.cc
            LINK muster::train)
muster_test(train_program_test LABEL integration SOURCES unit/training/program_test.cc
            LINK muster::json)
add_dependencies(train_program_test muster-train)
