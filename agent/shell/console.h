// SPDX-License-Identifier: Apache-2.0
//
// Workers' output: from their pipes to the console, to log files and into the kept tail of stderr.
//
// Each stream of each worker is read on the io thread and cut into lines; lines are written by
// threads of their own, because a write to a terminal, a pipe or a disk may block and the
// descriptors we inherited are shared with others (O_NONBLOCK on them would be theirs too). What
// the console does not take is spooled, in memory and then in a file, so that a blocked one delays
// its own output and nothing else; a worker waits for its log files only, and for a reader that is
// slower than it for as long as a full spool takes. The threads start with the first output.
//
// Rules (contracts §2): stdout to stdout, stderr to stderr; whole lines, never torn or mixed; a
// partial line is shown after 200 ms; '\r' updates at most 4 a second a rank on a terminal, only
// the last state elsewhere; lines above 64 KiB are cut there. Log files get every byte as it came.
//
// Thread rule: io thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/line_prefix.h"
#include "agent/shell/log_rules.h"
#include "agent/shell/unique_fd.h"
#include "proto/base/ids.h"
#include "proto/base/time.h"

namespace muster::agent {

enum class ConsoleMode : std::uint8_t { kAuto, kPrefixed, kLines, kRaw, kPty, kRank0, kNone };

struct ConsoleConfig {
  ConsoleMode mode = ConsoleMode::kAuto;
  std::uint32_t local_workers = 1;  // auto: raw for one on a terminal
  int stdout_fd = 1;                // borrowed for the life of the process
  int stderr_fd = 2;
  // Where the spool file may be; empty: what waits for the console is held in memory, all of it.
  std::string spool_folder = {};
  // What begins a prefixed line, see line_prefix.h; given by the user: auto means prefixed where it
  // would mean lines.
  std::string prefix = std::string(kDefaultLinePrefix);
  bool prefix_given = false;
  bool must_hear = false;  // auto never means raw
  JobId job = {};          // for the prefix
  NodeName node = {};
  LogRotation rotation = {};  // of workers' log files
  // Lines with any of these are copied to the files that WorkerOutput names.
  std::vector<std::string> stdout_filters = {};
  std::vector<std::string> stderr_filters = {};
};

// What kAuto means here; every other mode is itself.
ConsoleMode resolve_console_mode(const ConsoleConfig& config);

struct WorkerOutput {
  std::uint32_t local_rank = 0;
  std::uint32_t rank = 0;  // global: the prefix, and who is rank 0
  Generation generation = 0;
  // Log files, created with their folder existing; empty: none.
  std::string stdout_log;
  std::string stderr_log;
  // True where there was to be a log file, but its folder could not be made: all is shown.
  bool stdout_unlogged = false;
  bool stderr_unlogged = false;
  // Files of picked lines, shared by the node's workers; empty: none.
  std::string stdout_picked;
  std::string stderr_picked;
  // False where the stream is redirected without tee, or filtered.
  bool stdout_on_console = true;
  bool stderr_on_console = true;
};

// The worker's ends, for StdioPlan; close them after the spawn.
struct WorkerEnds {
  UniqueFd out;
  UniqueFd err;
  int out_fd = -1;  // what to give to spawn; may be an inherited descriptor
  int err_fd = -1;  // -1: /dev/null
  int error = 0;    // errno where a pipe could not be had: nothing to start with
};

struct ConsoleCounters {
  std::uint64_t console_bytes_dropped = 0;  // closed console
  std::uint64_t log_bytes_dropped = 0;      // full disk, no file at all
  std::uint64_t log_write_errors = 0;
};

class Console {
 public:
  Console(boost::asio::io_context& io, ConsoleConfig config);
  // Waits up to 100 ms for what is queued; use flush() for more.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  ConsoleMode mode() const;  // resolved, never kAuto

  // Opens pipes (or terminals), and log files, for one life of a worker. Its earlier life, if its
  // pipes are still open, is cut off: what it wrote so far is taken first.
  // What a log file cannot take, or all where it cannot be opened, is shown instead; one line for
  // all of them says so.
  WorkerEnds open_worker(const WorkerOutput& worker);

  // Last `lines` lines of the worker's stderr, at most 4 KiB, with what its pipe holds right now.
  // Empty in raw mode.
  std::string tail(std::uint32_t local_rank, std::size_t lines = 20);

  // When the worker's stderr was last read from; nullopt: never, or in raw mode.
  std::optional<Instant> last_words(std::uint32_t local_rank) const;
  // How long it has been failing, as the traceback says that it wrote (traceback_watch.h); takes
  // what its pipe holds. nullopt: it wrote none lately.
  std::optional<Duration> failing_for(std::uint32_t local_rank);
  // Bytes that all workers have written so far; in raw mode they do not pass through here.
  std::uint64_t heard() const;

  // All that is kept of it: the last 64 KiB.
  std::string kept_stderr(std::uint32_t local_rank);

  // Calls `done` when both streams of the worker have ended, or at `limit`, whichever is first;
  // after `limit` what the pipes hold is taken and they are closed (a process that escaped may
  // keep them open for ever). Never from inside this call.
  void finish_worker(std::uint32_t local_rank, Duration limit, std::function<void()> done);

  // One line of Muster's own on stderr, "muster: " and '\n' added. Never mixed into others' lines.
  void say(std::string_view line);
  // Text as it is (the failure block); ends a partial line of a worker first.
  void write_stderr(std::string text);
  void write_stdout(std::string text);

  // Calls `done` when everything queued has been written, or for `patience` nobody has taken
  // anything of it, or `limit` has passed, or give_up() is called.
  void flush(Duration patience, Duration limit, std::function<void()> done);
  void give_up();

  // In words, what has not been written and is not going to be; empty: nothing.
  std::string missing();
  // The same of log files; it has been shown.
  std::string missing_in_logs() const;

  // The terminal's size changed (SIGWINCH): hands it on to workers' terminals, which tell nobody,
  // being no session's. Returns whose have it now, by local rank.
  std::vector<std::uint32_t> resize_terminals();

  ConsoleCounters counters() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
