// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/model/token_sender.h"

#include <cstring>
#include <utility>

#include "proto/base/check.h"

namespace muster::runtime::cuda {

absl::Status TokenSender::allocate(Device& device, std::size_t tokens, std::size_t places) {
  for (Room& room : rooms_) {
    auto memory = device.allocate_pinned((tokens + 3 * places + 2) * sizeof(std::int32_t));
    if (!memory.ok()) return memory.status();
    room.memory = *std::move(memory);
    auto event = device.make_event();
    if (!event.ok()) return event.status();
    room.read = *std::move(event);
  }
  return absl::OkStatus();
}

absl::Status TokenSender::send(Stream& stream, std::span<const std::int32_t> tokens,
                               const TokenOrder* order, float scale, const TokenPlaces& to) {
  const Room& room = rooms_[next_];
  next_ = (next_ + 1) % rooms_.size();
  absl::Status status = room.read->wait();
  std::size_t at = 0;
  const auto put = [&](auto* place, const auto& numbers) {
    const std::size_t bytes = std::span(numbers).size_bytes();
    MUSTER_CHECK(at + bytes <= room.memory.size());
    std::byte* const written = room.memory.as<std::byte>() + at;
    std::memcpy(written, numbers.data(), bytes);
    at += bytes;
    if (status.ok()) status = stream.copy_to_device(place, written, bytes);
  };
  if (status.ok()) put(to.tokens, tokens);
  if (status.ok() && order != nullptr) {
    put(to.distinct, order->distinct);
    put(to.starts, order->starts);
    put(to.places, order->places);
    put(to.scale, std::span(&scale, 1));
  }
  return status.ok() ? stream.record(*room.read) : status;
}

}  // namespace muster::runtime::cuda
