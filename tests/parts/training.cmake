# SPDX-License-Identifier: Apache-2.0
muster_test(data_test LABEL unit SOURCES unit/training/corpus_test.cc unit/training/dataset_test.cc
            LINK muster::data)
