// SPDX-License-Identifier: Apache-2.0
//
// A queue of bytes and the one thread that writes them. Writing may block for ever (a stopped
// terminal, a full pipe, a dead file server); then this thread waits, and nobody else.
//
// Why a thread, and not O_NONBLOCK or poll: the console's descriptors share their flags with the
// shell that started us and with our siblings; a terminal that polls writable may still block in
// the middle of a write; sockets cannot be opened again; and a regular file always polls writable.
//
// Invariants: bytes of one target are written in the order queued; what a stream has queued is
// counted in its StreamBudget, where it gives one, until it is written or dropped.
//
// Thread rule: all members on the io thread; `failed`, `drained` and `dropped` are called there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "agent/shell/output_spool.h"
#include "agent/shell/rotating_file.h"
#include "agent/shell/unique_fd.h"
#include "proto/base/time.h"

namespace muster::agent {

// What was lost, over all targets that share it.
struct OutputDrops {
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> errors{0};  // failed writes
};

// Where to write. Made on the io thread, then shared with the writer's.
struct OutputTarget {
  std::string name;  // for messages: "stdout", a path
  UniqueFd owned;    // closed with the last chunk for it; empty where `fd` is borrowed
  int fd = -1;
  std::unique_ptr<RotatingFile> rotating;  // in place of `fd`
  // Ends at the first error (a closed console) instead of trying again (a full disk).
  bool give_up_on_close = false;
  std::shared_ptr<OutputDrops> drops;  // never null
  bool dead = false;                   // writer's thread: gave up
  bool told = false;                   // writer's thread: `failed` has been called
  std::uint64_t missing = 0;           // writer's thread: bytes that it could not take
  bool failing = false;                // writer's thread: it did not take the last ones
  // Called once, with the first errno.
  std::function<void(int)> failed;
  // Called when it takes bytes again, with the number of those that are missing in it.
  std::function<void(std::uint64_t)> resumed;
  // Called once, with the errno with which `rotating` could not rename files.
  std::function<void(int)> not_rotated;
  // Called with what could not be written, each time, in order. Set before the first write.
  std::function<void(std::string)> lost;
};

// What one stream has queued, over all writers.
struct StreamBudget {
  static constexpr std::size_t kHigh = 256 * 1024;  // its pipe is not read above
  static constexpr std::size_t kLow = 64 * 1024;    // and read again from here down

  std::atomic<std::size_t> queued{0};
  std::atomic<bool> paused{false};
  std::function<void()> drained;  // queued fell to kLow while paused; `paused` is false again
};

class OutputWriter {
 public:
  // Queues without limit, in memory.
  explicit OutputWriter(boost::asio::io_context& io);
  // Queues within `limits`. `dropped` is called with the number of bytes that did not fit, when
  // the descriptor takes bytes again.
  OutputWriter(boost::asio::io_context& io, SpoolLimits limits,
               std::function<void(std::uint64_t)> dropped);
  ~OutputWriter();
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;

  // Queues; starts the thread with the first bytes. `budget` may be null.
  void write(std::shared_ptr<OutputTarget> target, std::string bytes,
             std::shared_ptr<StreamBudget> budget);

  // Calls `idle` when all that is queued now has been written. Not from inside this call.
  void when_idle(std::function<void()> idle);

  bool idle() const;
  bool nearly_full() const;
  std::uint64_t written() const;  // bytes, over its life
  // What waits to be written, and what did not fit and has not been told.
  std::uint64_t missing();

  // Waits up to 100 ms for the queue; what is left then is lost with the thread that is stuck. No
  // callback comes after that. The destructor does it too.
  void close();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
