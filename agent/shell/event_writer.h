// SPDX-License-Identifier: Apache-2.0
//
// JobEvents as the JSON lines of contracts §5: `schema, ts, seq, job, run, event`, then where it
// happened, then the event's own fields. One write() a line, appended, so that lines of several
// processes in one file never mix. The agent writes --events with it, the server --server-events.
//
// Thread rule: not thread-safe; one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include <absl/status/status.h>

#include "agent/shell/event_json.h"
#include "proto/base/events.h"
#include "proto/base/ids.h"

namespace muster {

// Appends events to a file or to standard output.
class EventWriter {
 public:
  // `target`: a path or "-". {node}, {job} and {run} in it are replaced by path_component() of
  // the value; the file is opened at the first event, and anew when {run} gets another value.
  // Parent directories must exist.
  EventWriter(std::string target, NodeName node, JobId job);
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // Stamps and appends one event. Never blocks: what a full pipe does not take is kept (1 MiB)
  // and written later. An error is returned once and says what was lost; later events are
  // tried again and fail silently.
  absl::Status write(const RunId& run, const JobEvent& event);

  // Waits at most `limit_ms` for a full pipe to take what was kept. Called by the destructor
  // with 200.
  void flush(int limit_ms);

 private:
  absl::Status open_for(const RunId& run);
  absl::Status put(std::string line);
  absl::Status drain();
  void close_file();

  std::string target_;
  NodeName node_;
  JobId job_;
  int file_ = -1;
  bool owns_file_ = false;
  bool is_socket_ = false;  // standard output only; has no O_NONBLOCK of our own
  std::string opened_;      // target with its names replaced
  std::uint64_t seq_ = 0;
  std::deque<std::string> kept_;  // lines a full pipe did not take; the first may be a rest
  std::size_t kept_bytes_ = 0;
  bool begun_ = false;  // of the first of them some bytes are written
  bool torn_ = false;   // what is written ends in the middle of a line
  bool complained_ = false;
};

}  // namespace muster
