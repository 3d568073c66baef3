// SPDX-License-Identifier: Apache-2.0
//
// What a descriptor has not taken yet, in order: the first bytes in memory, and where a spool file
// is allowed the rest in a file without a name, a ring of bounded size. When the ring is full the
// oldest whole lines in it make room, and are counted.
//
// Not thread-safe; OutputWriter holds its lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "agent/shell/unique_fd.h"

namespace muster::agent {

struct OutputTarget;
struct StreamBudget;

struct OutputChunk {
  std::shared_ptr<OutputTarget> target;
  std::string bytes;
  std::shared_ptr<StreamBudget> budget;  // null once it was in the file
};

struct SpoolLimits {
  // For the file; empty: none, all is held in memory without limit.
  std::string folder;
  std::size_t memory = 4U << 20;
  // Never more than half of what is free there: the job's other small files live there too.
  std::uint64_t file = 256U << 20;
};

class OutputSpool {
 public:
  explicit OutputSpool(SpoolLimits limits) : limits_(std::move(limits)) {}

  void push(OutputChunk chunk);
  // The oldest. REQUIRES: !empty().
  OutputChunk pop();

  bool empty() const { return front_.empty() && head_ == tail_; }
  std::uint64_t size() const { return front_bytes_ + (tail_ - head_); }
  // Little room is left: who can should let what comes next wait where it is.
  bool nearly_full() const;
  std::uint64_t take_dropped() { return std::exchange(dropped_, 0); }

 private:
  struct Run {  // bytes in the file for one target
    std::shared_ptr<OutputTarget> target;
    std::uint64_t bytes = 0;
  };

  void push_to_file(OutputChunk chunk);
  void open_file();
  void make_room(std::uint64_t bytes);
  void drop_from_memory();
  std::size_t find_line_end();
  void forget(std::uint64_t bytes);
  std::size_t write_at_tail(std::string_view bytes);
  std::size_t read_at(std::uint64_t position, char* into, std::size_t count) const;

  SpoolLimits limits_;
  std::deque<OutputChunk> front_;  // older than what is in the file
  std::size_t front_bytes_ = 0;
  UniqueFd file_;
  std::uint64_t room_ = 0;  // size of the ring; 0: no file to be had
  std::uint64_t head_ = 0;  // positions never wrap; their place in the file is modulo room_
  std::uint64_t tail_ = 0;
  std::deque<Run> runs_;
  std::uint64_t dropped_ = 0;
  bool after_gap_ = false;     // the next bytes follow on a gap
  bool at_line_start_ = true;  // where the last bytes popped have ended
};

}  // namespace muster::agent
