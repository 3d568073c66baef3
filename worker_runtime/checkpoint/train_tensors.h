// SPDX-License-Identifier: Apache-2.0
//
// What training keeps between steps: what an engine is loaded with and a checkpoint holds.
//
// Thread rule: values.
#pragma once

#include <vector>

namespace muster::runtime {

// The tensors of one rank at stage 0, in the padded flat layout.
struct TrainTensors {
  std::vector<float> master;
  std::vector<float> m;
  std::vector<float> v;
};

}  // namespace muster::runtime
