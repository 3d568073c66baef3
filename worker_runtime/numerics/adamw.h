// SPDX-License-Identifier: Apache-2.0
//
// AdamW with decoupled weight decay, one element (or sixteen) at a time, in FP32. The coefficients
// are computed in FP64 once a step and rounded once.
#pragma once

#include <cmath>
#include <cstdint>

#include "worker_runtime/numerics/hd.h"
#include "worker_runtime/numerics/math.h"

namespace muster::runtime {

// DeepSpeed's and torch's names, meanings and defaults.
struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

namespace numerics {

struct AdamWCoefficients {
  float gradient_factor = 1;  // unscale and clip in one
  float beta1 = 0;
  float one_minus_beta1 = 1;
  float beta2 = 0;
  float one_minus_beta2 = 1;
  float second_correction = 1;  // 1 / sqrt(1 - beta2^t)
  float epsilon = 0;
  float step_size = 0;     // learning rate / (1 - beta1^t)
  float decay_factor = 1;  // 1 - learning rate * weight decay
};

// `update`: the number of this update, from 1. Skipped steps do not count.
inline AdamWCoefficients adamw_coefficients(const AdamWOptions& options, std::uint64_t update,
                                            double gradient_factor) {
  const double t = static_cast<double>(update);
  AdamWCoefficients c;
  c.gradient_factor = static_cast<float>(gradient_factor);
  c.beta1 = static_cast<float>(options.beta1);
  c.one_minus_beta1 = static_cast<float>(1 - options.beta1);
  c.beta2 = static_cast<float>(options.beta2);
  c.one_minus_beta2 = static_cast<float>(1 - options.beta2);
  c.second_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, t)));
  c.epsilon = static_cast<float>(options.epsilon);
  c.step_size = static_cast<float>(options.learning_rate / (1 - std::pow(options.beta1, t)));
  c.decay_factor = static_cast<float>(1 - options.learning_rate * options.weight_decay);
  return c;
}

template <class V>
MUSTER_HD void adamw_element(const AdamWCoefficients& c, bool decay, V gradient, V& parameter,
                             V& first, V& second) {
  const V g = gradient * V(c.gradient_factor);
  first = multiply_add(V(c.beta1), first, V(c.one_minus_beta1) * g);
  second = multiply_add(V(c.beta2), second, V(c.one_minus_beta2) * g * g);
  const V denominator = multiply_add(square_root(second), V(c.second_correction), V(c.epsilon));
  const V start = decay ? parameter * V(c.decay_factor) : parameter;
  parameter = multiply_add(V(-c.step_size), first / denominator, start);
}

}  // namespace numerics
}  // namespace muster::runtime
