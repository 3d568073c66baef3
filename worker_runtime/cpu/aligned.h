// SPDX-License-Identifier: Apache-2.0
//
// An array on 64-byte borders, zeroed. Trivial element types only.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <vector>

namespace muster::runtime {

template <class T>
struct AlignedAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{64};
  AlignedAllocator() = default;
  template <class U>
  explicit AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kAlignment));
  }
  void deallocate(T* p, std::size_t) { ::operator delete(p, kAlignment); }
  bool operator==(const AlignedAllocator&) const { return true; }
};

template <class T>
class AlignedArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedArray() = default;
  explicit AlignedArray(std::size_t size) : values_(size) {}

  T* data() { return values_.data(); }
  const T* data() const { return values_.data(); }
  std::size_t size() const { return values_.size(); }

 private:
  std::vector<T, AlignedAllocator<T>> values_;
};

}  // namespace muster::runtime
