// SPDX-License-Identifier: Apache-2.0
//
// What micro-batches differ in, tokens and the gradient's scale, on its way to the device, through
// two rooms of pinned memory: the host writes a micro-batch into one while the device may still
// have to read the other. It waits for the copy before that alone, so the device always has one
// micro-batch more to do than it is at.
//
// Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <absl/status/status.h>

#include "worker_runtime/cuda/device.h"
#include "worker_runtime/cuda/kernels/token_order.h"

namespace muster::runtime::cuda {

// Device memory.
struct TokenPlaces {
  std::int32_t* tokens = nullptr;
  std::int32_t* distinct = nullptr;  // as in TokenOrder, like those below
  std::uint32_t* starts = nullptr;
  std::uint32_t* places = nullptr;
  float* scale = nullptr;  // of the gradient
};

class TokenSender {
 public:
  // For micro-batches of at most so many tokens and places where a token's gradient is needed.
  absl::Status allocate(Device& device, std::size_t tokens, std::size_t places);

  // Queues the copies; what it is given has been read when it returns. `order`: none without a
  // backward pass, which alone has a scale.
  absl::Status send(Stream& stream, std::span<const std::int32_t> tokens, const TokenOrder* order,
                    float scale, const TokenPlaces& to);

 private:
  struct Room {
    Memory memory;
    std::unique_ptr<Event> read;  // by the device
  };
  std::array<Room, 2> rooms_;
  std::size_t next_ = 0;
};

}  // namespace muster::runtime::cuda
