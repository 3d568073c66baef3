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
#include <memory>
#include <string>
#include <string_view>

#include "agent/shell/line_splitter.h"
#include "agent/shell/output_writer.h"

namespace muster::agent {

using StreamId = std::uint64_t;  // 0: none

struct ConsoleSurface {
  ConsoleSurface(boost::asio::io_context& io, bool is_terminal)
      : writer(io), terminal(is_terminal) {}

  OutputWriter writer;
  bool terminal;
  StreamId open_by = 0;    // whose unfinished line the cursor stands in
  bool transient = false;  // a progress state is on the line, the cursor at its begin
};

class ConsoleOut {
 public:
  ConsoleOut(std::shared_ptr<ConsoleSurface> surface, std::shared_ptr<OutputTarget> target)
      : surface_(std::move(surface)), target_(std::move(target)) {}

  // `prefix` begins each line of it. `budget` may be null.
  void show(StreamId stream, PieceKind kind, std::string_view text, const std::string& prefix,
            const std::shared_ptr<StreamBudget>& budget);

  bool terminal() const { return surface_->terminal; }

 private:
  std::shared_ptr<ConsoleSurface> surface_;
  std::shared_ptr<OutputTarget> target_;
};

}  // namespace muster::agent
