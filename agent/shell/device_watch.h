// SPDX-License-Identifier: Apache-2.0
//
// Looks at GPU memory between two generations, for agent/core/device_memory. NVML's calls may take
// seconds, or for ever on a sick device: a thread of their own makes them, only while somebody
// waits, and shuts NVML down again, so that no device is held open while workers run.
//
// Thread rule: io thread only; so is the callback.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "proto/base/time.h"

namespace muster::agent {

// Where devices are found; tests have their own.
struct DevicePlaces {
  std::string root = "/dev";  // nvidiactl where there is a driver, and kmsg
  std::string nvml = "libnvidia-ml.so.1";
  std::optional<std::string> mask;  // CUDA_VISIBLE_DEVICES of the workers

  bool has_driver() const;
};

class DeviceWatch {
 public:
  DeviceWatch(boost::asio::io_context& io, DevicePlaces places);
  // No callback comes after. Waits a moment for a thread that is in a call; one that is stuck
  // there is left to die with the process.
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // `holder`: what still holds memory at the end of the patience; empty: nothing. `trouble`: why
  // nobody looked; empty: somebody did.
  using Done = std::function<void(const std::string& holder, const std::string& trouble)>;

  // Calls `done` once, when the memory of `pids`, which are gone, is free or `patience` is over;
  // not from inside this call. A second call takes the first one's place.
  void await(std::vector<std::int64_t> pids, Duration patience, Done done);

 private:
  struct Request;
  void forget(Duration wait);

  boost::asio::io_context& io_;
  const DevicePlaces places_;
  std::shared_ptr<Request> request_;
};

}  // namespace muster::agent
