// SPDX-License-Identifier: Apache-2.0
//
// Blocks and warps as the host runs them, one thread after the other; see exec.h. What a device
// would have to do right, this can check: that no result depends on the order of threads, that
// shared memory is written before it is read (it starts as NaN bytes), and, under ASan and UBSan,
// that nothing beyond an array is touched and that 16-byte accesses are aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "proto/base/check.h"
#include "worker_runtime/cuda/kernels/exec.h"
#include "worker_runtime/cuda/kernels/mma.h"

namespace muster::runtime::cuda {

// Of threads in a phase, and of blocks in a launch.
enum class Order : std::uint8_t { kForwards, kBackwards, kShuffled };

// The `step`-th of `count` things to take in this order.
std::uint64_t in_order(Order order, std::uint64_t step, std::uint64_t count);

template <class T>
class HostPerThread {
 public:
  explicit HostPerThread(unsigned threads) : values_(threads) {}
  T& operator[](Thread t) { return values_[t.index]; }

 private:
  std::vector<T> values_;
};

class HostWarp {
 public:
  HostWarp(unsigned index, Order order) : index_(index), order_(order) {}
  unsigned index() const { return index_; }

  template <class F>
  void each(F f) {
    for (unsigned step = 0; step < kWarp; ++step)
      f(thread(static_cast<unsigned>(in_order(order_, step, kWarp))));
  }
  template <unsigned kLanes = kWarp, class F>
  void sum(F value_of) {
    exchange(kLanes, value_of, [](float own, float other) { return own + other; });
  }
  template <unsigned kLanes = kWarp, class F>
  void max(F value_of) {
    exchange(kLanes, value_of, [](float own, float other) { return other > own ? other : own; });
  }
  template <class S, class F>
  void mma(F operands_of) {
    MmaOperands operands[kWarp];
    for (unsigned lane = 0; lane < kWarp; ++lane)
      operands[lane] = operands_of(thread(lane));
    mma_host<S>(operands);
  }
  template <bool kTransposed, class F>
  void load_matrices(F rows_of) {
    MatrixRows rows[kWarp];
    for (unsigned lane = 0; lane < kWarp; ++lane)
      rows[lane] = rows_of(thread(lane));
    load_matrices_host<kTransposed>(rows);
  }

 private:
  Thread thread(unsigned lane) const { return {index_ * kWarp + lane}; }

  template <class F, class Combine>
  void exchange(unsigned lanes, F value_of, Combine combine) {
    for (unsigned step = lanes / 2; step > 0; step /= 2) {
      float before[kWarp];
      for (unsigned lane = 0; lane < kWarp; ++lane)
        before[lane] = value_of(thread(lane));
      for (unsigned lane = 0; lane < kWarp; ++lane)
        value_of(thread(lane)) = combine(before[lane], before[lane ^ step]);
    }
  }

  unsigned index_;
  Order order_;
};

class HostBlock {
 public:
  HostBlock(unsigned x, unsigned y, unsigned threads, std::size_t shared_bytes, Order order)
      : x_(x),
        y_(y),
        threads_(threads),
        order_(order),
        shared_((shared_bytes + sizeof(Line) - 1) / sizeof(Line)) {
    if (!shared_.empty()) std::memset(shared_.data(), 0xff, shared_.size() * sizeof(Line));
  }

  unsigned x() const { return x_; }
  unsigned y() const { return y_; }

  template <class F>
  void each(F f) {
    for (unsigned step = 0; step < threads_; ++step)
      f(Thread{static_cast<unsigned>(in_order(order_, step, threads_))});
  }
  // A device carries a copy out at some time between its start and the end of the wait. Both
  // ends are tried: forwards at once, in the other orders as late as can be.
  template <unsigned kPending, class F>
  void copies(F f) {
    copies_.emplace_back();
    each(f);
    while (copies_.size() > kPending) {
      for (const Copy& copy : copies_.front())
        carry_out(copy);
      copies_.pop_front();
    }
  }
  template <class S>
  void copy_pack(S* to, const S* from, bool exists) {
    MUSTER_CHECK(reinterpret_cast<std::uintptr_t>(to) % sizeof(Line) == 0);
    MUSTER_CHECK(reinterpret_cast<std::uintptr_t>(from) % sizeof(Line) == 0);
    start({to, exists ? from : nullptr, sizeof(Line)});
  }
  void copy_word(float* to, const float* from, bool exists) {
    start({to, exists ? from : nullptr, sizeof(float)});
  }
  template <class F>
  void warps(F f) {
    const unsigned count = threads_ / kWarp;
    for (unsigned step = 0; step < count; ++step) {
      HostWarp warp(static_cast<unsigned>(in_order(order_, step, count)), order_);
      f(warp);
    }
  }
  template <class T>
  T& shared() {
    MUSTER_CHECK(sizeof(T) <= shared_.size() * sizeof(Line));
    return *reinterpret_cast<T*>(shared_.data());
  }
  template <class T>
  HostPerThread<T> per_thread() {
    return HostPerThread<T>(threads_);
  }

 private:
  struct alignas(16) Line {
    std::byte bytes[16];
  };
  struct Copy {
    void* to;
    const void* from;  // nullptr: zeroes
    std::size_t bytes;
  };
  static void carry_out(const Copy& copy) {
    if (copy.from != nullptr) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    } else {
      std::memset(copy.to, 0, copy.bytes);
    }
  }
  void start(const Copy& copy) {
    if (order_ == Order::kForwards) {
      carry_out(copy);
    } else {
      copies_.back().push_back(copy);
    }
  }
  unsigned x_;
  unsigned y_;
  unsigned threads_;
  Order order_;
  std::vector<Line> shared_;
  std::deque<std::vector<Copy>> copies_;  // of the phases that are still on their way
};

template <class Kernel>
inline constexpr std::size_t shared_bytes = std::is_empty_v<typename Kernel::Shared>
                                                ? 0
                                                : sizeof(typename Kernel::Shared);

// Runs every block of the grid.
template <class Kernel>
void run_on_host(Grid grid, const typename Kernel::Args& args, Order order = Order::kForwards) {
  static_assert(Kernel::kThreads % kWarp == 0 && Kernel::kThreads <= 1024);
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y;
  for (std::uint64_t step = 0; step < blocks; ++step) {
    const std::uint64_t at = in_order(order, step, blocks);
    HostBlock block(static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x),
                    Kernel::kThreads, shared_bytes<Kernel>, order);
    Kernel::run(block, args);
  }
}

}  // namespace muster::runtime::cuda
