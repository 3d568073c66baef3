// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cpu/matmul.h"

#include <omp.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include <oneapi/dnnl/dnnl.hpp>

#include "worker_runtime/cpu/aligned.h"

namespace muster::runtime {
namespace {

// FTZ (bit 15), DAZ (bit 6), rounding mode (bits 13 and 14).
constexpr unsigned kControlCleared = (1U << 15) | (1U << 6) | (3U << 13);

unsigned read_control() {
#if defined(__x86_64__)
  return _mm_getcsr();
#else
  return 0;
#endif
}

void write_control([[maybe_unused]] unsigned control) {
#if defined(__x86_64__)
  _mm_setcsr(control);
#endif
}

// oneDNN throws only when memory is short or the library is broken: nothing to go on with.
template <class F>
auto or_abort(const char* what, F f) {
  try {
    return f();
  } catch (const dnnl::error& e) {
    std::fprintf(stderr, "muster-train: oneDNN: %s: %s\n", what, e.message);
    std::abort();
  }
}

}  // namespace

ComputeScope::ComputeScope() : threads_(omp_get_max_threads()), control_(read_control()) {
  omp_set_num_threads(1);
  write_control(control_ & ~kControlCleared);
}

ComputeScope::~ComputeScope() {
  write_control(control_);
  omp_set_num_threads(threads_);
}

struct Matmul::State {
  struct Entry {
    dnnl::matmul primitive;
    dnnl::memory a;
    dnnl::memory b;
    dnnl::memory c;
    dnnl::memory scratch;
  };

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<ProductShape, Entry> entries;
  AlignedArray<std::byte> scratch;

  Entry build(const ProductShape& shape);
};

Matmul::State::Entry Matmul::State::build(const ProductShape& shape) {
  using Memory = dnnl::memory;
  const auto m = static_cast<Memory::dim>(shape.m);
  const auto n = static_cast<Memory::dim>(shape.n);
  const auto k = static_cast<Memory::dim>(shape.k);
  const auto matrix = [](Memory::dim rows, Memory::dim columns, bool transposed) {
    const Memory::dims strides = transposed ? Memory::dims{1, rows} : Memory::dims{columns, 1};
    return Memory::desc({rows, columns}, Memory::data_type::f32, strides);
  };
  const Memory::desc a = matrix(m, k, shape.transpose_a);
  const Memory::desc b = matrix(k, n, shape.transpose_b);
  const Memory::desc c = matrix(m, n, false);
  dnnl::primitive_attr attributes;
  // oneDNN's own scratchpad belongs to the thread that built the primitive; ours to this object.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.add) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes, engine);
  const Memory::desc pad = description.scratchpad_desc();
  return {dnnl::matmul(description), Memory(a, engine, nullptr), Memory(b, engine, nullptr),
          Memory(c, engine, nullptr), Memory(pad, engine, nullptr)};
}

Matmul::Matmul() : state_(or_abort("cannot start", [] { return std::make_unique<State>(); })) {}

Matmul::~Matmul() = default;
Matmul::Matmul(Matmul&& other) noexcept = default;
Matmul& Matmul::operator=(Matmul&& other) noexcept = default;

void Matmul::run(const ProductShape& shape, const float* a, const float* b, float* c) {
  or_abort("matrix product failed", [&] {
    State& state = *state_;
    auto found = state.entries.find(shape);
    if (found == state.entries.end())
      found = state.entries.emplace(shape, state.build(shape)).first;
    State::Entry& entry = found->second;
    const std::size_t needed = entry.scratch.get_desc().get_size();
    if (state.scratch.size() < needed) state.scratch = AlignedArray<std::byte>(needed);
    // The interface takes one pointer type for inputs and outputs.
    entry.a.set_data_handle(const_cast<float*>(a), state.stream);
    entry.b.set_data_handle(const_cast<float*>(b), state.stream);
    entry.c.set_data_handle(c, state.stream);
    entry.scratch.set_data_handle(state.scratch.data(), state.stream);
    entry.primitive.execute(state.stream, {{DNNL_ARG_SRC, entry.a},
                                           {DNNL_ARG_WEIGHTS, entry.b},
                                           {DNNL_ARG_DST, entry.c},
                                           {DNNL_ARG_SCRATCHPAD, entry.scratch}});
    state.stream.wait();
  });
}

std::string matmul_signature() {
  const dnnl_version_t* version = dnnl_version();
  const char* isa = "other";
  switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41: isa = "sse41"; break;
    case dnnl_cpu_isa_avx: isa = "avx"; break;
    case dnnl_cpu_isa_avx2: isa = "avx2"; break;
    case dnnl_cpu_isa_avx2_vnni: isa = "avx2_vnni"; break;
    case dnnl_cpu_isa_avx512_core: isa = "avx512_core"; break;
    case dnnl_cpu_isa_avx512_core_vnni: isa = "avx512_core_vnni"; break;
    case dnnl_cpu_isa_avx512_core_bf16: isa = "avx512_core_bf16"; break;
    default: break;
  }
  return "onednn " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + " " + isa;
}

}  // namespace muster::runtime
