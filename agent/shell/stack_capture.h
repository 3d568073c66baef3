// SPDX-License-Identifier: Apache-2.0
//
// Writes where workers stand into files: what the kernel says of all of them first, which is
// cheap, then their own stacks by py-spy (Python programs) or gdb, where these are installed. A
// thread of its own does it: reading /proc, writing to a file server and starting programs may take
// their time. A forked helper would not do: after a fork of a process with threads little may be
// called before exec.
//
// What is started here are children of this process: until they end, a Supervisor may take them for
// processes that a worker left behind. Capture first, then kill.
//
// A process that is looked at stays as it was, running or stopped, also where the debugger has to
// be killed; it may see a SIGCONT then.
//
// Errors: what cannot be captured has no path; why a program gave no stacks stands in the file.
// Ownership: nothing of the caller's is kept but the loop, which must outlive this object.
// Thread rule: io thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/agent.h"
#include "proto/base/time.h"

namespace muster::agent {

struct StackTarget {
  std::uint32_t local_rank = 0;
  std::uint32_t rank = 0;
  pid_t pid = 0;
  std::string path;  // of the file, which is made anew; empty: look whether it is stopped, no more
};

class StackCapture {
 public:
  // `search`: folders for py-spy and gdb, separated by colons, as in PATH.
  StackCapture(boost::asio::io_context& io, std::string search);
  // Kills what was started, and waits a moment for it to be gone; no callback comes any more. A
  // thread that is stuck in a read is left to itself.
  ~StackCapture();
  StackCapture(const StackCapture&) = delete;
  StackCapture& operator=(const StackCapture&) = delete;

  // `done` is called once, with all targets in order and the files that were written, after `limit`
  // at the latest. Replaces a capture under way, which is not answered then.
  void start(std::vector<StackTarget> targets, Duration limit,
             std::function<void(std::vector<CapturedStacks>)> done);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
