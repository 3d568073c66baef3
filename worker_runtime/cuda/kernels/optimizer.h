// SPDX-License-Identifier: Apache-2.0
//
// What happens to a reduced gradient: finite check and squared norm in one reading, and AdamW.
// Flat FP32 arrays, or parts of them; aligned ones (16 bytes) move sixteen bytes an access.
// Both have the CPU's bits (optim/optimizer.h): the norm is that of the gradient as it was
// reduced, and loss scale, token count and clip factor enter as the one number
// `gradient_factor`, which AdamW multiplies each element by.
#pragma once

#include <cstdint>

#include "worker_runtime/cuda/kernels/lowest_index.h"
#include "worker_runtime/numerics/adamw.h"
#include "worker_runtime/numerics/reduce.h"
#include "worker_runtime/numerics/stochastic.h"

namespace muster::runtime::cuda {

// Of each logical block of numerics::kNormBlock elements (a block of threads): the FP64 sum of
// squares and the lowest index of a non-finite element. Sixteen threads add, in the order of
// numerics/reduce.h; all of them load.
struct CheckNorm {
  static constexpr unsigned kThreads = 256;
  static constexpr std::size_t kPiece = std::size_t{kThreads} * kEach;
  static_assert(numerics::kNormBlock % kPiece == 0);
  struct Shared {
    union {
      float numbers[kPiece];
      double lanes[numerics::kLanes];
    };
    LowestOf<kThreads> bad;
  };
  struct Args {
    const float* gradients;  // [count]
    double* square_sums;     // [grid.x]
    std::uint64_t* bad;      // [grid.x]: `first` + index, or kNoIndex
    std::size_t count;
    std::uint64_t first;  // flat index of gradients[0], a multiple of numerics::kNormBlock
  };
  static Grid grid(std::size_t count) { return {blocks_for(count, numerics::kNormBlock), 1}; }

  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    Shared& shared = block.template shared<Shared>();
    const std::size_t start = std::size_t{block.x()} * numerics::kNormBlock;
    const std::size_t rest = a.count - start;
    const std::size_t count = rest < numerics::kNormBlock ? rest : numerics::kNormBlock;
    auto sums = block.template per_thread<double>();
    block.each([&](Thread t) { shared.bad.index[t.index] = kNoIndex; });
    for (std::size_t piece = 0; piece < count; piece += kPiece) {
      block.each([&](Thread t) { load_piece(a, shared, start, piece, t); });
      block.each([&](Thread t) {
        if (t.index < numerics::kLanes) sums[t] = add_squares(shared, count - piece, t, sums[t]);
      });
    }
    block.each([&](Thread t) {
      if (t.index < numerics::kLanes) shared.lanes[t.index] = sums[t];
    });
    block.each([&](Thread t) {
      if (t.index == 0) a.square_sums[block.x()] = numerics::tree_sum(&shared.lanes[0]);
    });
    shared.bad.reduce(block, [&](std::uint64_t lowest) { a.bad[block.x()] = lowest; });
  }

 private:
  MUSTER_KERNEL_CODE static void load_piece(const Args& a, Shared& shared, std::size_t start,
                                            std::size_t piece, Thread t) {
    // Four at a time and kThreads * 4 apart: neighbours touch neighbouring banks.
    constexpr unsigned kFour = kPack<float>;
    MUSTER_UNROLL
    for (unsigned part = 0; part < kEach / kFour; ++part) {
      const std::size_t in_piece = (std::size_t{part} * kThreads + t.index) * kFour;
      const std::size_t at = start + piece + in_piece;
      float x[kFour];
      Pack<float> pack;
      load_numbers(a.gradients, at, a.count, x);
      MUSTER_UNROLL
      for (unsigned i = kFour; i-- > 0;) {
        std::uint64_t& bad = shared.bad.index[t.index];
        if (!is_finite(x[i]) && a.first + at + i < bad) bad = a.first + at + i;
        pack.at[i] = x[i];
      }
      store_pack(shared.numbers + in_piece, pack);
    }
  }
  // `left` elements of the block from this piece on.
  MUSTER_KERNEL_CODE static double add_squares(const Shared& shared, std::size_t left, Thread t,
                                               double sum) {
    const std::size_t count = left < kPiece ? left : kPiece;
    for (std::size_t i = t.index; i < count; i += numerics::kLanes) {
      const double x = static_cast<double>(shared.numbers[i]);
      sum = sum + x * x;
    }
    return sum;
  }
};

// What changes from update to update; in device memory, so that a captured launch reads the
// current one.
struct UpdateState {
  numerics::AdamWCoefficients coefficients;
  std::uint32_t skip = 0;          // 1: nothing is written
  std::uint64_t rounding_key = 0;  // of stochastic rounding; unlike the seed of initialisation
  std::uint64_t update = 0;        // applied updates, from 1
};

// One update of a range that lies in one tensor. `copy` gets the new parameters rounded to S, to
// nearest or, kByChance, stochastically with the word of (rounding_key, update, flat index).
template <class S, bool kByChance = false>
struct AdamW {
  static constexpr unsigned kThreads = kElementThreads;
  using Shared = NoShared;
  struct Args {
    const UpdateState* state;
    const float* gradients;              // [count]
    float *parameters, *first, *second;  // [count]: masters and moments
    S* copy;                             // [count], or nullptr: none
    std::size_t count;
    std::uint64_t offset;  // flat index of parameters[0]; kByChance: a multiple of 4
    unsigned decay;
  };
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    block.each([&](Thread t) {
      const UpdateState& state = *a.state;
      const std::size_t at = element_offset(block.x(), t);
      if (state.skip != 0 || at >= a.count) return;
      float g[kEach];
      float p[kEach];
      float m[kEach];
      float v[kEach];
      load_numbers(a.gradients, at, a.count, g);
      load_numbers(a.parameters, at, a.count, p);
      load_numbers(a.first, at, a.count, m);
      load_numbers(a.second, at, a.count, v);
      MUSTER_UNROLL
      for (unsigned i = 0; i < kEach; ++i)
        numerics::adamw_element(state.coefficients, a.decay != 0, g[i], p[i], m[i], v[i]);
      store_numbers(p, a.parameters, at, a.count);
      store_numbers(m, a.first, at, a.count);
      store_numbers(v, a.second, at, a.count);
      if (a.copy == nullptr) return;
      if constexpr (kByChance) round_by_chance(state, a.offset + at, p);
      store_numbers(p, a.copy, at, a.count);
    });
  }

 private:
  // Leaves numbers that S holds exactly.
  MUSTER_KERNEL_CODE static void round_by_chance(const UpdateState& state, std::uint64_t element,
                                                 float (&p)[kEach]) {
    MUSTER_UNROLL
    for (unsigned i = 0; i < kEach; i += 4) {
      const numerics::Philox words =
          numerics::rounding_words(state.rounding_key, state.update, element + i);
      MUSTER_UNROLL
      for (unsigned j = 0; j < 4; ++j) {
        if constexpr (std::is_same_v<S, Bf16>) {
          p[i + j] = to_number(numerics::to_bf16_by_chance(p[i + j], words.word[j]));
        } else {
          p[i + j] = to_number(numerics::to_f16_by_chance(p[i + j], words.word[j]));
        }
      }
    }
  }
};

}  // namespace muster::runtime::cuda
