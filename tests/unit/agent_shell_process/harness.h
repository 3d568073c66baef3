// SPDX-License-Identifier: Apache-2.0
//
// What the process tests share: a loop that runs until a condition holds, a folder that goes
// away, and looking at processes from outside.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "agent/shell/io_loop.h"
#include "agent/shell/worker_process.h"

namespace muster::agent {

// State of this test program at its start; SIGCHLD and the stop signals are blocked by then.
const StartingState& starting_state();

// Runs handlers until `holds` is true; false after `limit`.
bool run_until(IoLoop& loop, const std::function<bool()>& holds, Duration limit = 30s);
// The same without a loop.
bool wait_until(const std::function<bool()>& holds, Duration limit = 30s);

class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string read_text(const std::string& path);
// The number in a file written by the probe; 0 while it is not there.
pid_t read_pid(const std::string& path);
// Exists and is no zombie.
bool is_running(pid_t pid);
// Open descriptors of this process.
std::size_t count_descriptors();

// The environment of the test, for workers.
std::map<std::string, std::string> own_environment();

// A worker that runs the probe, with /dev/null for stdio.
WorkerRequest probe_request(std::vector<std::string> arguments);
WorkerRequest shell_request(const std::string& script);

// Notes what comes of a worker.
struct Observed {
  int spawned = 0;
  int ended = 0;
  int gone = 0;
  int unkillable = 0;
  pid_t pid = 0;
  pid_t stuck_pid = 0;      // of unkillable
  std::string stuck_state;  // …
  WorkerExit exit;
  std::vector<std::string> log;  // "spawned", "ended", "gone", "unkillable", in order

  WorkerCallbacks callbacks();
};

}  // namespace muster::agent
