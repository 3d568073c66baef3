// SPDX-License-Identifier: Apache-2.0
//
// Softmax cross-entropy over FP32 logits, with their gradient written over them in S.
//
// logits [rows][stride], columns [0, vocabulary) count; those up to `stride` are padding, which is
// never read. target(row) = targets[row / time * target_stride + row % time], with row counted
// from first_row; REQUIRES: it lies in [0, vocabulary).
// dlogits = (softmax - one hot) * *scale, row r at byte r * stride * 4 of the same memory: its
// leading dimension is stride * 4 / sizeof(S) elements (twice `stride` for the 16-bit formats).
// Its columns [vocabulary, padded) become 0, so that a product may run over `padded` of them;
// REQUIRES: vocabulary <= padded <= stride. What lies behind them in the row is undefined.
// Logits on a 16-byte border and a stride that is a multiple of 4 move sixteen bytes an access.
//
// One block a row, two readings. First each thread keeps the maximum of its columns and their
// exponentials' sum relative to it, which the block combines: thread by thread in a fixed tree,
// so no result depends on the launch. The sum is not in the CPU's order. With u = 2^-24 and w the
// windows of 2048 columns it is off by at most (11 w + 24 + ln vocabulary) u of itself: eight
// additions and a rescaling a window, the tree, and the rounding of x - maximum, which weighs as
// much as the distribution's mean distance from it. The softmax p is off by that and
// (5 + |x - maximum|) u, relative, plus 2^-147 where e^x is subnormal, and p - 1 by another 4 u,
// then both are rounded to S. A row's loss is off by the sum's error and by 4 u of each of its
// parts, log(sum) and maximum - target.
// NaN or +infinity among the logits makes NaN of the row, as on the CPU; -infinity is e^x = 0.
// Second, gradients are written in windows of columns: all threads read a window, then all write
// it. What a window writes never reaches beyond its own columns' bytes, because S is not wider
// than float; so nothing is overwritten before it was read.
#pragma once

#include <cstdint>

#include "worker_runtime/cuda/kernels/elementwise.h"

namespace muster::runtime::cuda {

template <class S>
struct CrossEntropy {
  static constexpr unsigned kThreads = 256;
  static constexpr unsigned kWarps = kThreads / kWarp;
  static constexpr std::size_t kWindow = std::size_t{kThreads} * kEach;
  struct Shared {
    float maximum[kWarps];
    float sum[kWarps];
    float aim;  // the target's logit
  };
  struct Args {
    float* logits;
    const std::int32_t* targets;
    float* losses;  // [rows]
    std::size_t target_stride, time, first_row;
    std::size_t rows, vocabulary, padded, stride;
    const float* scale;  // in device memory, so that a captured launch reads the current one
    unsigned gradient;   // 0: the loss alone; logits stay as they are
  };
  static Grid grid(std::size_t rows) { return {static_cast<unsigned>(rows), 1}; }

  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    Shared& shared = block.template shared<Shared>();
    float* row = a.logits + block.x() * a.stride;
    const std::size_t at = a.first_row + block.x();
    const auto target =
        static_cast<std::size_t>(a.targets[at / a.time * a.target_stride + at % a.time]);
    auto own = block.template per_thread<Part>();
    block.each([&](Thread t) {
      own[t] = part_of(row, a.vocabulary, t);
      if (t.index == 0) shared.aim = row[target];
    });
    combine(block, shared, own);
    block.each([&](Thread t) {
      if (t.index == 0)
        a.losses[block.x()] = numerics::log(own[t].sum) + (own[t].maximum - shared.aim);
    });
    if (a.gradient == 0) return;
    write_gradient(block, a, row, target, own);
  }

 private:
  // Not -infinity: a logit of that must not make NaN of the others.
  static constexpr float kLowest = -3.40282347e38F;
  struct Part {
    float maximum = kLowest;
    float sum = 0;  // of e^(x - maximum)
  };
  struct Piece {
    float at[kEach];
  };

  MUSTER_KERNEL_CODE static Part part_of(const float* row, std::size_t count, Thread t) {
    Part part;
    for (std::size_t at = t.index * std::size_t{kEach}; at < count; at += kWindow) {
      float x[kEach];
      load_numbers(row, at, count, x);
      float maximum = part.maximum;
      MUSTER_UNROLL
      for (unsigned i = 0; i < kEach; ++i) {
        if (at + i < count && x[i] > maximum) maximum = x[i];
      }
      part.sum = part.sum * numerics::exp(part.maximum - maximum);
      part.maximum = maximum;
      MUSTER_UNROLL
      for (unsigned i = 0; i < kEach; ++i)
        part.sum = part.sum + (at + i < count ? numerics::exp(x[i] - maximum) : 0.0F);
    }
    return part;
  }

  // Every thread's part becomes the row's.
  template <class Block, class Own>
  MUSTER_KERNEL_CODE static void combine(Block& block, Shared& shared, Own& own) {
    auto maximum = block.template per_thread<float>();
    block.warps([&](auto& warp) {
      warp.each([&](Thread t) { maximum[t] = own[t].maximum; });
      warp.max([&](Thread t) -> float& { return maximum[t]; });
      warp.each([&](Thread t) {
        if (t.lane() == 0) shared.maximum[warp.index()] = maximum[t];
      });
    });
    block.warps([&](auto& warp) {
      warp.each([&](Thread t) {
        float most = shared.maximum[0];
        MUSTER_UNROLL
        for (unsigned w = 1; w < kWarps; ++w)
          most = shared.maximum[w] > most ? shared.maximum[w] : most;
        own[t].sum = own[t].sum * numerics::exp(own[t].maximum - most);
        own[t].maximum = most;
      });
      warp.sum([&](Thread t) -> float& { return own[t].sum; });
      warp.each([&](Thread t) {
        if (t.lane() == 0) shared.sum[warp.index()] = own[t].sum;
      });
    });
    block.each([&](Thread t) {
      float sum = shared.sum[0];
      MUSTER_UNROLL
      for (unsigned w = 1; w < kWarps; ++w)
        sum = sum + shared.sum[w];
      own[t].sum = sum;
    });
  }

  template <class Block, class Own>
  MUSTER_KERNEL_CODE static void write_gradient(Block& block, const Args& a, float* row,
                                                std::size_t target, Own& own) {
    S* out = reinterpret_cast<S*>(row);
    const float scale = *a.scale;
    auto pieces = block.template per_thread<Piece>();
    for (std::size_t window = 0; window < a.padded; window += kWindow) {
      block.each([&](Thread t) {
        const std::size_t at = window + t.index * std::size_t{kEach};
        if (at >= a.padded) return;
        const float sum = own[t].sum;
        const float factor = 1.0F / sum;
        Piece piece;
        load_numbers(row, at, a.vocabulary, piece.at);
        MUSTER_UNROLL
        for (unsigned i = 0; i < kEach; ++i) {
          float e = numerics::exp(piece.at[i] - own[t].maximum);
          if (at + i == target) e = e - sum;  // (e - sum) / sum = softmax - 1
          piece.at[i] = at + i < a.vocabulary ? e * factor * scale : 0.0F;
        }
        pieces[t] = piece;
      });
      block.each([&](Thread t) {
        const std::size_t at = window + t.index * std::size_t{kEach};
        if (at < a.padded) store_numbers(pieces[t].at, out, at, a.padded);
      });
    }
  }
};

// *sum += the rows' losses, added in FP64 in row order: the CPU's bits, given the same losses.
// One block.
struct SumLosses {
  static constexpr unsigned kThreads = 256;
  static constexpr std::size_t kPiece = 4096;
  struct Shared {
    float losses[kPiece];
    double total;
  };
  struct Args {
    const float* losses;  // [rows]
    double* sum;
    std::size_t rows;
  };
  static Grid grid() { return {1, 1}; }
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    Shared& shared = block.template shared<Shared>();
    block.each([&](Thread t) {
      if (t.index == 0) shared.total = 0;
    });
    for (std::size_t first = 0; first < a.rows; first += kPiece) {
      const std::size_t count = a.rows - first < kPiece ? a.rows - first : kPiece;
      block.each([&](Thread t) {
        for (std::size_t i = t.index; i < count; i += kThreads)
          shared.losses[i] = a.losses[first + i];
      });
      block.each([&](Thread t) {
        if (t.index != 0) return;
        double total = shared.total;
        for (std::size_t i = 0; i < count; ++i)
          total = total + static_cast<double>(shared.losses[i]);
        shared.total = total;
      });
    }
    block.each([&](Thread t) {
      if (t.index == 0) *a.sum = *a.sum + shared.total;
    });
  }
};

}  // namespace muster::runtime::cuda
