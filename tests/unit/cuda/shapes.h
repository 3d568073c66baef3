// SPDX-License-Identifier: Apache-2.0
//
// What the tests of kernels over rows share: shapes, widening, and the distance from a reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "worker_runtime/cpu/kernels.h"
#include "worker_runtime/cuda/kernels/pack.h"

namespace muster::runtime::cuda {

struct RowShape {
  std::size_t rows, width;
};

template <class S>
std::vector<float> widened(const std::vector<S>& values) {
  std::vector<float> out(values.size());
  kernels<S>(Isa::kPortable).widen(values.data(), out.data(), values.size());
  return out;
}

template <class S>
std::vector<double> in_doubles(const std::vector<S>& values) {
  std::vector<double> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(),
                 [](S x) { return static_cast<double>(to_number(x)); });
  return out;
}

// Half the distance of neighbours, relative to a number: the error of one rounding to S.
template <class S>
constexpr double kRounding = 0x1p-24;
template <>
inline constexpr double kRounding<Bf16> = 0x1p-8;
template <>
inline constexpr double kRounding<F16> = 0x1p-11;

// Half the distance of subnormal neighbours.
template <class S>
constexpr double kTiny = 0x1p-150;
template <>
inline constexpr double kTiny<Bf16> = 0x1p-134;
template <>
inline constexpr double kTiny<F16> = 0x1p-25;

// The largest |got - want| / (allowed error), which is to be at most 1. The allowed error of
// element i: `before` before it was stored, and one rounding to S. Not finite: infinite.
template <class S>
double worst_error(const std::vector<S>& got, const std::vector<double>& want,
                   const std::vector<double>& before) {
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double rounding = kRounding<S> * (std::abs(want[i]) + before[i]) + kTiny<S>;
    const double error = std::abs(static_cast<double>(to_number(got[i])) - want[i]);
    const double share = error / (before[i] + rounding);
    if (!std::isfinite(share)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, share);
  }
  return worst;
}

}  // namespace muster::runtime::cuda
