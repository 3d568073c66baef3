// SPDX-License-Identifier: Apache-2.0
//
// How a kernel is written: once, for devices and for the host executor that tests it.
//
// A kernel is a struct with its arguments and one function over a block of threads:
//
//   struct Double {
//     static constexpr unsigned kThreads = 256;          // a block; a multiple of kWarp
//     struct Shared { float x[kThreads]; };              // of a block; NoShared where there is
//     none struct Args { const float* in; float* out; };      // trivially copyable; device
//     addresses template <class Block> MUSTER_KERNEL_CODE static void run(Block& block, const Args&
//     a) {
//       block.each([&](Thread t) { … });                 // a phase: all threads, then a barrier
//     }
//   };
//
// Between phases stands a barrier of the block (of the warp inside Block::warps), and nothing a
// thread writes to shared or global memory is read by another one in the same phase. What a thread
// keeps from phase to phase lives in block.per_thread<T>(). Control flow outside of phases must be
// the same for all threads of the block: it may depend on arguments and on the block's place alone.
//
// On a device each() runs its body once, as the thread that it is, and then waits for the others.
// On the host it runs the body for every thread in turn; since no order among threads is promised
// the executor can take them forwards, backwards or shuffled (exec_host.h), and tests compare.
//
//   Block:  x(), y()           its place in the grid
//           each(f)            f(Thread)
//           copies<P>(f)       each(f), whose body may start copies from global to shared memory,
//                              copy_pack(to, from, exists) of sixteen bytes and copy_word of four,
//                              of zeroes where nothing exists. They go on after the phase and have
//                              arrived for all threads at the end of the P-th phase of copies after
//                              it, of this one for P = 0; until then nobody touches their places
//           warps(f)           f(Warp&), for every warp of the block
//           shared<T>()        the block's shared memory, not initialised
//           per_thread<T>()    one T a thread, value-initialised; [Thread] gives it
//   Warp:   index()            in its block
//           each(f)            f(Thread), for the threads of this warp
//           sum(f), max(f)     f(Thread) -> float&; every thread gets the sum (maximum) of all,
//                              by the tree l ^ 16, l ^ 8 … l ^ 1
//           sum<N>(f), max<N>  of the N lanes (a power of two) with equal lane / N
//           mma<S>(f)          mma.h
//           load_matrices<T>   mma.h
#pragma once

#include "worker_runtime/numerics/hd.h"

#if defined(__CUDACC__)
#define MUSTER_KERNEL_CODE __device__ __forceinline__
#define MUSTER_UNROLL _Pragma("unroll")
#else
#define MUSTER_KERNEL_CODE inline
#define MUSTER_UNROLL
#endif

namespace muster::runtime::cuda {

inline constexpr unsigned kWarp = 32;

struct Thread {
  unsigned index;  // in its block
  MUSTER_HD unsigned lane() const { return index % kWarp; }
};

// Blocks of a launch. x goes up to 2^31 - 1, y up to 65535.
struct Grid {
  unsigned x = 1;
  unsigned y = 1;
};

struct NoShared {};

// Blocks of `each` elements that cover `count`.
MUSTER_HD unsigned blocks_for(unsigned long long count, unsigned long long each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

}  // namespace muster::runtime::cuda
