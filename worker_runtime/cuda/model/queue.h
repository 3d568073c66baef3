// SPDX-License-Identifier: Apache-2.0
//
// A stream that many things are queued on in a row: after the first error nothing more is queued,
// and status() has it. So a model's code reads as its mathematics.
#pragma once

#include <cstddef>
#include <utility>

#include <absl/status/status.h>

#include "worker_runtime/cuda/device.h"
#include "worker_runtime/cuda/products.h"

namespace muster::runtime::cuda {

class Queue {
 public:
  Queue(Stream& stream, DeviceProducts& products) : stream_(stream), products_(products) {}

  // From now on, or not: nothing is queued, but the algorithms of products are chosen.
  void only_plan(bool only) { only_plan_ = only; }

  template <class Kernel>
  void launch(Grid grid, const typename Kernel::Args& args) {
    if (queues()) status_ = stream_.launch<Kernel>(grid, args);
  }
  void product(const DeviceProduct& product) {
    if (!status_.ok()) return;
    status_ = only_plan_ ? products_.plan(product) : products_.run(stream_, product);
  }
  void zero(void* memory, std::size_t size) {
    if (queues()) status_ = stream_.zero(memory, size);
  }
  void to_device(void* to, const void* from, std::size_t size) {
    if (queues()) status_ = stream_.copy_to_device(to, from, size);
  }
  void to_host(void* to, const void* from, std::size_t size) {
    if (queues()) status_ = stream_.copy_to_host(to, from, size);
  }
  void copy(void* to, const void* from, std::size_t size) {
    if (queues()) status_ = stream_.copy(to, from, size);
  }
  // What somebody else queues; nothing after an error.
  template <class Call>
  void check(Call call) {
    if (queues()) status_ = call();
  }
  void synchronize() {
    if (queues()) status_ = stream_.synchronize();
  }
  // The first error since the last time this was asked.
  absl::Status take_status() { return std::exchange(status_, absl::OkStatus()); }

 private:
  bool queues() const { return status_.ok() && !only_plan_; }

  Stream& stream_;
  DeviceProducts& products_;
  absl::Status status_;
  bool only_plan_ = false;
};

}  // namespace muster::runtime::cuda
