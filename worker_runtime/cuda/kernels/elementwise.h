// SPDX-License-Identifier: Apache-2.0
//
// Casts, residual and bias additions, GELU. Element-wise, so their bits are those of cpu/kernels.
// S: how activations are stored; P: how a product left its result, S or float. Every result is
// rounded to S once. Arrays are dense; [rows][width] is row-major. Aligned arrays (16 bytes, and
// width a multiple of 8 where there are rows) move sixteen bytes an access; others work, slower.
#pragma once

#include <cstddef>

#include "worker_runtime/cuda/kernels/pack.h"
#include "worker_runtime/numerics/math.h"

namespace muster::runtime::cuda {

// Elements that a thread of these kernels works on.
inline constexpr unsigned kEach = 8;
inline constexpr unsigned kElementThreads = 256;

// Of kernels over `count` elements.
inline Grid element_grid(std::size_t count) {
  return {blocks_for(count, kElementThreads * kEach), 1};
}

MUSTER_HD std::size_t element_offset(unsigned block, Thread t) {
  return (std::size_t{block} * kElementThreads + t.index) * kEach;
}

// out = in, rounded. In and out do not overlap.
template <class From, class To>
struct Cast {
  static constexpr unsigned kThreads = kElementThreads;
  using Shared = NoShared;
  struct Args {
    const From* in;
    To* out;
    std::size_t count;
  };
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    block.each([&](Thread t) {
      const std::size_t at = element_offset(block.x(), t);
      float x[kEach];
      load_numbers(a.in, at, a.count, x);
      store_numbers(x, a.out, at, a.count);
    });
  }
};

// out += in, FP32.
struct Add {
  static constexpr unsigned kThreads = kElementThreads;
  using Shared = NoShared;
  struct Args {
    const float* in;
    float* out;
    std::size_t count;
  };
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    block.each([&](Thread t) {
      const std::size_t at = element_offset(block.x(), t);
      float x[kEach];
      float sum[kEach];
      load_numbers(a.in, at, a.count, x);
      load_numbers(a.out, at, a.count, sum);
      MUSTER_UNROLL
      for (unsigned i = 0; i < kEach; ++i)
        sum[i] = sum[i] + x[i];
      store_numbers(sum, a.out, at, a.count);
    });
  }
};

// Of kernels over [rows][width] in which a thread works on kEach columns of one row.
inline Grid row_grid(std::size_t rows, std::size_t width) {
  return {blocks_for(rows * blocks_for(width, kEach), kElementThreads), 1};
}
struct RowPlace {
  std::size_t row;
  std::size_t column;
};
MUSTER_HD RowPlace row_place(unsigned block, Thread t, std::size_t width) {
  const std::size_t pieces = (width + kEach - 1) / kEach;
  const std::size_t piece = std::size_t{block} * kElementThreads + t.index;
  return {piece / pieces, piece % pieces * kEach};
}

// out = product + bias.
template <class S, class P>
struct AddBias {
  static constexpr unsigned kThreads = kElementThreads;
  using Shared = NoShared;
  struct Args {
    const P* product;  // [rows][width]
    const S* bias;     // [width]
    S* out;            // [rows][width]; may be `product`
    std::size_t rows, width;
  };
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    block.each([&](Thread t) {
      const RowPlace at = row_place(block.x(), t, a.width);
      if (at.row >= a.rows) return;
      float x[kEach];
      float bias[kEach];
      load_numbers(a.product + at.row * a.width, at.column, a.width, x);
      load_numbers(a.bias, at.column, a.width, bias);
      MUSTER_UNROLL
      for (unsigned i = 0; i < kEach; ++i)
        x[i] = x[i] + bias[i];
      store_numbers(x, a.out + at.row * a.width, at.column, a.width);
    });
  }
};

// out = residual + (product + bias).
template <class S, class P>
struct AddResidual {
  static constexpr unsigned kThreads = kElementThreads;
  using Shared = NoShared;
  struct Args {
    const P* product;   // [rows][width]
    const S* bias;      // [width]
    const S* residual;  // [rows][width]
    S* out;             // [rows][width]; may be `residual`
    std::size_t rows, width;
  };
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    block.each([&](Thread t) {
      const RowPlace at = row_place(block.x(), t, a.width);
      if (at.row >= a.rows) return;
      float x[kEach];
      float bias[kEach];
      float residual[kEach];
      load_numbers(a.product + at.row * a.width, at.column, a.width, x);
      load_numbers(a.bias, at.column, a.width, bias);
      load_numbers(a.residual + at.row * a.width, at.column, a.width, residual);
      MUSTER_UNROLL
      for (unsigned i = 0; i < kEach; ++i)
        x[i] = residual[i] + (x[i] + bias[i]);
      store_numbers(x, a.out + at.row * a.width, at.column, a.width);
    });
  }
};

// pre = product + bias, act = gelu(pre as stored).
template <class S, class P>
struct BiasGelu {
  static constexpr unsigned kThreads = kElementThreads;
  using Shared = NoShared;
  struct Args {
    const P* product;  // [rows][width]
    const S* bias;     // [width]
    S* pre;            // [rows][width], kept for the backward pass; may be `product`
    S* act;            // [rows][width]
    std::size_t rows, width;
  };
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    block.each([&](Thread t) {
      const RowPlace at = row_place(block.x(), t, a.width);
      if (at.row >= a.rows) return;
      float x[kEach];
      float bias[kEach];
      load_numbers(a.product + at.row * a.width, at.column, a.width, x);
      load_numbers(a.bias, at.column, a.width, bias);
      float act[kEach];
      MUSTER_UNROLL
      for (unsigned i = 0; i < kEach; ++i) {
        x[i] = rounded<S>(x[i] + bias[i]);
        act[i] = numerics::gelu<float, float>(x[i]);
      }
      store_numbers(x, a.pre + at.row * a.width, at.column, a.width);
      store_numbers(act, a.act + at.row * a.width, at.column, a.width);
    });
  }
};

// act = gelu(pre), where a product's epilogue has added the bias.
template <class S>
struct Gelu {
  static constexpr unsigned kThreads = kElementThreads;
  using Shared = NoShared;
  struct Args {
    const S* pre;
    S* act;
    std::size_t count;
  };
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    block.each([&](Thread t) {
      const std::size_t at = element_offset(block.x(), t);
      float x[kEach];
      load_numbers(a.pre, at, a.count, x);
      MUSTER_UNROLL
      for (unsigned i = 0; i < kEach; ++i)
        x[i] = numerics::gelu<float, float>(x[i]);
      store_numbers(x, a.act, at, a.count);
    });
  }
};

// dpre = dact * gelu'(pre).
template <class S, class P>
struct GeluBackward {
  static constexpr unsigned kThreads = kElementThreads;
  using Shared = NoShared;
  struct Args {
    const P* dact;
    const S* pre;
    S* dpre;  // may be `dact`
    std::size_t count;
  };
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    block.each([&](Thread t) {
      const std::size_t at = element_offset(block.x(), t);
      float gradient[kEach];
      float pre[kEach];
      load_numbers(a.dact, at, a.count, gradient);
      load_numbers(a.pre, at, a.count, pre);
      MUSTER_UNROLL
      for (unsigned i = 0; i < kEach; ++i)
        gradient[i] = gradient[i] * numerics::gelu_slope<float, float>(pre[i]);
      store_numbers(gradient, a.dpre, at, a.count);
    });
  }
};

}  // namespace muster::runtime::cuda
