// SPDX-License-Identifier: Apache-2.0
//
// Sixteen bytes at a time: what a thread reads and writes in one access, of global and of shared
// memory. Addresses must be multiples of sixteen bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "worker_runtime/cuda/kernels/exec.h"
#include "worker_runtime/numerics/half.h"

#if !defined(__CUDACC__)
#include "proto/base/check.h"
#endif

namespace muster::runtime::cuda {

template <class S>
inline constexpr unsigned kPack = 16 / sizeof(S);

template <class S>
struct alignas(16) Pack {
  S at[kPack<S>];
};

MUSTER_HD float to_number(float x) {
  return x;
}
MUSTER_HD float to_number(Bf16 x) {
  return numerics::to_float(x);
}
MUSTER_HD float to_number(F16 x) {
  return numerics::to_float(x);
}

// Rounded to S.
template <class S>
MUSTER_HD S stored(float x) {
  if constexpr (std::is_same_v<S, Bf16>) {
    return numerics::to_bf16(x);
  } else if constexpr (std::is_same_v<S, F16>) {
    return numerics::to_f16(x);
  } else {
    return x;
  }
}

// What is read back after storing.
template <class S>
MUSTER_HD float rounded(float x) {
  return to_number(stored<S>(x));
}

template <class S>
MUSTER_KERNEL_CODE Pack<S> load_pack(const S* from) {
#if defined(__CUDACC__)
  return *reinterpret_cast<const Pack<S>*>(from);
#else
  MUSTER_CHECK(reinterpret_cast<std::uintptr_t>(from) % 16 == 0);
  Pack<S> pack;
  for (unsigned i = 0; i < kPack<S>; ++i)
    pack.at[i] = from[i];
  return pack;
#endif
}

template <class S>
MUSTER_KERNEL_CODE void store_pack(S* to, const Pack<S>& pack) {
#if defined(__CUDACC__)
  *reinterpret_cast<Pack<S>*>(to) = pack;
#else
  MUSTER_CHECK(reinterpret_cast<std::uintptr_t>(to) % 16 == 0);
  for (unsigned i = 0; i < kPack<S>; ++i)
    to[i] = pack.at[i];
#endif
}

// The same to global memory alone. The compiler takes an ordinary store of a pack apart where it
// finds stores of the same numbers on another branch (store_numbers has one), this one it keeps.
template <class S>
MUSTER_KERNEL_CODE void store_pack_global(S* to, const Pack<S>& pack) {
#if defined(__CUDACC__)
  const uint4 words = __builtin_bit_cast(uint4, pack);
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
#else
  store_pack(to, pack);
#endif
}

// Whether packs can be read and written at multiples of kPack from here.
template <class S>
MUSTER_HD bool is_aligned(const S* array) {
  return reinterpret_cast<std::uintptr_t>(array) % 16 == 0;
}

// kCount elements of array[0 … count) from `offset`, a multiple of kCount: in accesses of sixteen
// bytes where the array is aligned and all of them exist, else one by one. Beyond the end: 0.
// store_numbers writes to global memory.
template <unsigned kCount, class S>
MUSTER_KERNEL_CODE void load_numbers(const S* array, std::size_t offset, std::size_t count,
                                     float (&out)[kCount]) {
  if (kCount % kPack<S> == 0 && is_aligned(array) && offset + kCount <= count) {
    MUSTER_UNROLL
    for (unsigned i = 0; i < kCount; i += kPack<S>) {
      const Pack<S> pack = load_pack(array + offset + i);
      MUSTER_UNROLL
      for (unsigned j = 0; j < kPack<S> && i + j < kCount; ++j)
        out[i + j] = to_number(pack.at[j]);
    }
  } else {
    MUSTER_UNROLL
    for (unsigned i = 0; i < kCount; ++i)
      out[i] = offset + i < count ? to_number(array[offset + i]) : 0.0F;
  }
}

template <unsigned kCount, class S>
MUSTER_KERNEL_CODE void store_numbers(const float (&in)[kCount], S* array, std::size_t offset,
                                      std::size_t count) {
  if (kCount % kPack<S> == 0 && is_aligned(array) && offset + kCount <= count) {
    MUSTER_UNROLL
    for (unsigned i = 0; i < kCount; i += kPack<S>) {
      Pack<S> pack;
      MUSTER_UNROLL
      for (unsigned j = 0; j < kPack<S> && i + j < kCount; ++j)
        pack.at[j] = stored<S>(in[i + j]);
      store_pack_global(array + offset + i, pack);
    }
  } else {
    MUSTER_UNROLL
    for (unsigned i = 0; i < kCount; ++i) {
      if (offset + i < count) array[offset + i] = stored<S>(in[i]);
    }
  }
}

}  // namespace muster::runtime::cuda
