// SPDX-License-Identifier: Apache-2.0
//
// One console descriptor, shared by all workers' streams and Muster's own lines: puts pieces on
// it so that lines of different streams never mix.
//
// What is on the screen is remembered per surface: stdout and stderr that are the same terminal
// or file are one surface, with one writer, so that they cannot tear each other's lines.
//
// Thread rule: io thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "agent/shell/line_splitter.h"
#include "agent/shell/output_writer.h"
#include "proto/base/time.h"

namespace muster::agent {

using StreamId = std::uint64_t;  // 0: none

// When a writer last got on, as far as it was looked at: also by what its reader took since, which
// a write that blocks does not tell.
class WriterWatch {
 public:
  // `fd`: of the pipe, terminal or socket that is written to; -1: only what is written counts.
  WriterWatch(const OutputWriter& writer, int fd);
  // An idle writer gets on; one that is looked at for the first time has the benefit of the doubt:
  // its thread may not have had its turn yet.
  Instant moved_at(Instant now);

 private:
  const OutputWriter& writer_;
  int fd_;
  unsigned long question_ = 0;  // ioctl that tells what waits in the kernel
  std::uint64_t written_ = 0;
  int unread_ = 0;
  std::optional<Instant> moved_at_;  // nullopt: not looked at yet
};

struct ConsoleSurface {
  ConsoleSurface(boost::asio::io_context& io, int fd, SpoolLimits limits,
                 std::function<void(std::uint64_t)> dropped);

  // A reader that is slow, but reads, shall lose nothing: streams wait for it when the spool has
  // little room. One that does not read for kStuck is not waited for.
  bool wants_rest(Instant now);

  OutputWriter writer;
  WriterWatch watch;
  bool terminal;
  StreamId open_by = 0;    // whose unfinished line the cursor stands in
  bool transient = false;  // a progress state is on the line, the cursor at its begin
};

class ConsoleOut {
 public:
  ConsoleOut(std::shared_ptr<ConsoleSurface> surface, std::shared_ptr<OutputTarget> target)
      : surface_(std::move(surface)), target_(std::move(target)) {}

  // `prefix` begins each line of it.
  void show(StreamId stream, PieceKind kind, std::string_view text, const std::string& prefix);

  bool terminal() const { return surface_->terminal; }
  bool wants_rest(Instant now) { return surface_->wants_rest(now); }

 private:
  std::shared_ptr<ConsoleSurface> surface_;
  std::shared_ptr<OutputTarget> target_;
};

}  // namespace muster::agent
