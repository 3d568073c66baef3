# SPDX-License-Identifier: Apache-2.0
muster_test(data_test LABEL unit SOURCES unit/training/corpus_test.cc unit/training/dataset_test.cc
            LINK muster::data)
muster_test(checkpoint_test LABEL unit
            SOURCES unit/training/checkpoint_test.cc unit/training/checkpoint_crash_test.cc
                    unit/training/manifest_test.cc
            LINK muster::checkpoint muster::data)
muster_test(train_config_test LABEL unit SOURCES unit/training/config_test.cc
            LINK muster::train_config)
