// SPDX-License-Identifier: Apache-2.0
//
// One allocation cut into arrays: what a model needs is known before anything is allocated, so
// memory runs out at the start, with the whole sum in the message, or never.
#pragma once

#include <cstddef>

#include <absl/status/status.h>

#include "worker_runtime/cuda/device.h"

namespace muster::runtime::cuda {

class Arena {
 public:
  // Room for `count` of T on a border of 256 bytes; its place is known after allocate().
  template <class T>
  class Array {
   public:
    T* data() const { return reinterpret_cast<T*>(static_cast<std::byte*>(*base_) + offset_); }

   private:
    friend class Arena;
    void* const* base_ = nullptr;
    std::size_t offset_ = 0;
  };

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  template <class T>
  Array<T> reserve(std::size_t count) {
    Array<T> array;
    array.base_ = &base_;
    array.offset_ = size_;
    size_ += (count * sizeof(T) + kBorder - 1) / kBorder * kBorder;
    return array;
  }
  std::size_t size() const { return size_; }

  absl::Status allocate(Device& device) {
    absl::StatusOr<Memory> memory = device.allocate(size_);
    if (!memory.ok()) return memory.status();
    memory_ = std::move(*memory);
    base_ = memory_.data();
    return absl::OkStatus();
  }

 private:
  static constexpr std::size_t kBorder = 256;
  Memory memory_;
  void* base_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace muster::runtime::cuda
