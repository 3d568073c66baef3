// SPDX-License-Identifier: Apache-2.0
//
// One stream of one worker: reads its pipe or terminal, keeps the tail, feeds the log file and
// shows pieces on the console.
//
// Invariants: every byte read goes to the log in order, or where it cannot to the console; reading
// stops while more than StreamBudget::kHigh bytes wait for the log file, or while a console that
// is being read has no room left in its spool, and only then.
//
// Thread rule: io thread only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/traceback_watch.h"
#include "agent/shell/console_out.h"
#include "agent/shell/line_filter.h"
#include "agent/shell/line_splitter.h"
#include "agent/shell/output_writer.h"
#include "agent/shell/tail_buffer.h"
#include "agent/shell/unique_fd.h"
#include "proto/base/time.h"

namespace muster::agent {

inline constexpr Duration kPartialLineDelay = 200ms;
inline constexpr Duration kUpdateInterval = 250ms;

struct PumpConfig {
  UniqueFd source;  // non-blocking
  StreamId id = 0;
  std::string prefix;
  std::shared_ptr<ConsoleOut> console;  // null: not shown
  bool only_lost = false;               // the console has what the log could not take, no more
  std::shared_ptr<OutputWriter> log_writer;
  std::shared_ptr<OutputTarget> log;      // null: no file
  std::shared_ptr<OutputDrops> unlogged;  // counts what was meant for a file; null: nothing was
  std::optional<LineFilter> filter;       // picks lines for `picked`
  std::shared_ptr<OutputTarget> picked;
  std::shared_ptr<TailBuffer> tail;            // null: not kept
  std::shared_ptr<TracebackWatch> tracebacks;  // null: nobody asks
  std::shared_ptr<Instant> next_update;        // when the rank may show its next '\r' state
  std::shared_ptr<std::vector<char>> buffer;   // scratch, shared by all pumps of a thread
  std::shared_ptr<std::uint64_t> heard;        // counts all bytes read; null: nobody asks
};

class StreamPump : public std::enable_shared_from_this<StreamPump> {
 public:
  StreamPump(boost::asio::io_context& io, PumpConfig config);

  // Starts reading; `ended` is called once, at the end of the stream or after close().
  void start(std::function<void()> ended);
  // Takes what the pipe holds right now (at most 1 MiB), waiting for nothing.
  void drain_now();
  // Takes what the pipe holds and closes it.
  void close();

  bool has_ended() const { return ended_; }
  // nullopt: nothing was read yet.
  std::optional<Instant> last_read() const {
    return any_read_ ? std::optional(read_at_) : std::nullopt;
  }
  int source() { return source_.native_handle(); }

 private:
  enum class Read { kSome, kNothing, kEnd };

  void wait();
  void read_some();
  Read read_once();
  void take(std::string_view data);
  void take_lost(std::string_view data);
  void show(PieceKind kind, std::string_view text);
  void show_update();
  bool pause_if_full();
  bool rest_if_asked();
  void arm_partial_timer();
  void end();

  boost::asio::io_context& io_;
  boost::asio::posix::stream_descriptor source_;
  boost::asio::steady_timer partial_timer_;
  boost::asio::steady_timer update_timer_;
  boost::asio::steady_timer rest_timer_;
  PumpConfig config_;
  LineSplitter splitter_;
  LineSplitter::Sink sink_;
  LineFilter::Sink picked_sink_;
  std::shared_ptr<StreamBudget> budget_;
  std::function<void()> on_end_;
  std::string update_;  // the state to show when its turn comes
  Instant read_at_;     // the last time
  Instant last_read_;   // the same, or later: of the partial line's timer
  bool any_read_ = false;
  bool partial_armed_ = false;
  bool resting_ = false;  // for the console's sake
  bool waiting_ = false;  // for the source
  bool ended_ = false;
};

}  // namespace muster::agent
