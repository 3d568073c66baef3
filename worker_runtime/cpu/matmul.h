// SPDX-License-Identifier: Apache-2.0
//
// Products of FP32 matrices through oneDNN, with one primitive a shape, built at first use.
// The result is always written row-major; no layout is chosen by measurement, so that two runs
// on one instruction set give the same bits.
//
// Thread rule: one thread per object at a time; the calling thread computes alone (ComputeScope).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <tuple>

namespace muster::runtime {

// For its lifetime the calling thread computes as all our results assume: oneDNN (OpenMP) with one
// thread, subnormals kept (FTZ and DAZ off), rounding to nearest. Restores what it found.
class ComputeScope {
 public:
  ComputeScope();
  ~ComputeScope();
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;

 private:
  int threads_ = 0;
  unsigned control_ = 0;
};

struct ProductShape {
  bool transpose_a = false;  // a is stored [k][m]
  bool transpose_b = false;  // b is stored [n][k]
  bool add = false;          // c += instead of c =
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  bool operator<(const ProductShape& other) const {
    return std::tie(transpose_a, transpose_b, add, m, n, k) <
           std::tie(other.transpose_a, other.transpose_b, other.add, other.m, other.n, other.k);
  }
};

class Matmul {
 public:
  Matmul();
  ~Matmul();
  Matmul(Matmul&& other) noexcept;
  Matmul& operator=(Matmul&& other) noexcept;

  // c [m][n] = op(a) op(b), all dense and row-major. REQUIRES: inside a ComputeScope; no overlap.
  void run(const ProductShape& shape, const float* a, const float* b, float* c);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What decides the bits of a product besides its inputs: oneDNN's version and instruction set,
// e.g. "onednn 2.6.3 avx512_core_bf16". Equal on all ranks, or results differ in last bits.
std::string matmul_signature();

}  // namespace muster::runtime
