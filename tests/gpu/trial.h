// SPDX-License-Identifier: Apache-2.0
//
// A trial of one kernel: what it reads and writes, and how close a device's result has to be to the
// host's. The same trial at another size is what is timed.
//
// Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "worker_runtime/cpu/aligned.h"
#include "worker_runtime/cuda/kernels/names.h"
#include "worker_runtime/numerics/philox.h"

namespace muster::runtime::cuda::gpu_check {

// What the cases are cut to. Arrays are [batch * time][width] and the like.
struct TrialSize {
  std::string name;
  std::size_t batch = 1, time = 1, width = 1, heads = 1, vocabulary = 1;
  unsigned plain_head = 1;       // head size of attention without tensor cores
  bool timed = false;            // contents do not matter
  bool only_on_devices = false;  // too slow where a host plays the device
  std::size_t rows() const { return batch * time; }
};

using HostBytes = std::vector<std::byte, AlignedAllocator<std::byte>>;

struct TrialBuffer {
  HostBytes pattern;     // what it starts from, again and again up to `size`
  std::size_t size = 0;  // bytes
  bool written = false;
  // 0: the host's bits. Else as numbers, at most this share of the largest one apart.
  double tolerance = 0;
  float (*number)(const std::byte* at) = nullptr;  // how to read one
  std::size_t number_size = 0;
};

// A buffer of the trial, of T.
template <class T>
struct Ref {
  std::size_t index;
};

// Where the buffers of a run lie.
class Places {
 public:
  explicit Places(std::vector<void*> at) : at_(std::move(at)) {}
  template <class T>
  T* operator()(Ref<T> ref) const {
    return static_cast<T*>(at_[ref.index]);
  }

 private:
  std::vector<void*> at_;
};

struct Trial {
  std::string kernel;
  std::string size;
  Grid grid;
  std::vector<TrialBuffer> buffers;
  std::function<absl::Status(Stream&, const Places&)> launch;
  std::function<void(const Places&)> on_host;
  double bytes = 0;       // that it moves at least
  double operations = 0;  // on tensor cores; 0: bytes are what counts
};

// Runs the kernel of this name as the host does; in a file of its own, away from what is declared
// for devices.
void run_host_kernel(const std::string& name, Grid grid, const void* args, std::size_t args_size);

// `count` normal numbers times `deviation`, as S; from some count on they repeat.
template <class S>
std::vector<S> numbers(std::size_t count, std::uint64_t seed, float deviation = 1.0F) {
  constexpr std::size_t kPeriod = 131'101;
  std::vector<S> values(count < kPeriod ? count : kPeriod);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const numerics::Philox bits = numerics::philox(seed, i, 99);
    values[i] = stored<S>(numerics::normal_pair(bits.word[0], bits.word[1]).first * deviation);
  }
  return values;
}

template <class Kernel>
class TrialMaker {
 public:
  using Args = typename Kernel::Args;

  explicit TrialMaker(const TrialSize& size) {
    trial_.kernel = KernelName<Kernel>::kName;
    trial_.size = size.name;
  }

  // `count` elements, of which `pattern` are the first; it is repeated.
  template <class T>
  Ref<T> in(const std::vector<T>& pattern, std::size_t count) {
    return add(pattern, count, 1);
  }
  template <class T>
  Ref<T> in(const std::vector<T>& all) {
    return add(all, all.size(), 1);
  }
  // Written only; starts as bytes of ones, which are NaN in every format.
  template <class T>
  Ref<T> out(std::size_t count, double tolerance = 0) {
    const Ref<T> ref = add(std::vector<T>(), count, 1);
    trial_.buffers.back().pattern.assign(64, std::byte{0xff});
    written<T>(ref, tolerance);
    return ref;
  }
  template <class T>
  Ref<T> in_out(const std::vector<T>& pattern, std::size_t count, double tolerance = 0) {
    const Ref<T> ref = add(pattern, count, 2);
    written<T>(ref, tolerance);
    return ref;
  }

  Trial done(Grid grid, std::function<Args(const Places&)> args) {
    trial_.grid = grid;
    trial_.launch = [grid, args](Stream& stream, const Places& at) {
      return stream.launch<Kernel>(grid, args(at));
    };
    trial_.on_host = [grid, args](const Places& at) {
      const Args values = args(at);
      run_host_kernel(KernelName<Kernel>::kName, grid, &values, sizeof(values));
    };
    return std::move(trial_);
  }
  // Unless it moves what its buffers hold.
  void moves(double bytes) { trial_.bytes = bytes; }
  void multiplies(double operations) { trial_.operations = operations; }

 private:
  template <class T>
  Ref<T> add(const std::vector<T>& pattern, std::size_t count, unsigned accesses) {
    TrialBuffer buffer;
    buffer.pattern.resize(pattern.size() * sizeof(T));
    if (!pattern.empty()) std::memcpy(buffer.pattern.data(), pattern.data(), buffer.pattern.size());
    buffer.size = count * sizeof(T);
    trial_.bytes += static_cast<double>(accesses) * static_cast<double>(buffer.size);
    trial_.buffers.push_back(std::move(buffer));
    return {trial_.buffers.size() - 1};
  }
  template <class T>
  void written(Ref<T> ref, double tolerance) {
    TrialBuffer& buffer = trial_.buffers[ref.index];
    buffer.written = true;
    buffer.tolerance = tolerance;
    buffer.number_size = sizeof(T);
    if constexpr (!std::is_integral_v<T> && !std::is_same_v<T, double>) {
      buffer.number = [](const std::byte* at) {
        T value;
        std::memcpy(&value, at, sizeof(value));
        return to_number(value);
      };
    }
  }
  Trial trial_;
};

// Which kernel a case is of.
template <class Kernel>
struct Of {};

// Makes a kernel's trial at a size. A family is a file; a kernel without a case does not compile.
struct KernelCase {
  std::string kernel;
  std::function<Trial(const TrialSize&)> make;
};
std::vector<KernelCase> attention_cases();
std::vector<KernelCase> elementwise_cases();
std::vector<KernelCase> norm_and_loss_cases();
std::vector<KernelCase> table_and_update_cases();  // embedding, optimizer, buckets

// All of them; ends the process where the list of kernels has one that is not among them.
std::vector<KernelCase> all_cases();

#define MUSTER_GPU_CHECK_CASE(name, ...) \
  {#name, [](const TrialSize& size) { return trial_of(Of<__VA_ARGS__>(), size); }},

}  // namespace muster::runtime::cuda::gpu_check
