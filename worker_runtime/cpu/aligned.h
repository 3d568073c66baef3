// SPDX-License-Identifier: Apache-2.0
//
// An array on 64-byte borders, zeroed. Trivial element types only.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

namespace muster::runtime {

template <class T>
class AlignedArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedArray() = default;
  explicit AlignedArray(std::size_t size)
      : data_(static_cast<T*>(::operator new(size * sizeof(T), kAlignment))), size_(size) {
    clear();
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::span<T> span() { return {data(), size_}; }

  // All bits zero.
  void clear() {
    if (size_ != 0) std::memset(static_cast<void*>(data_.get()), 0, size_ * sizeof(T));
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Release {
    void operator()(T* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<T[], Release> data_;
  std::size_t size_ = 0;
};

}  // namespace muster::runtime
