// SPDX-License-Identifier: Apache-2.0
//
// Which runs' logs stay (--log-keep): old run folders of a job are removed when a new run starts.
//
// Never removed are: the newest run, the one that starts, the one that `latest` names, one that an
// agent uses, and whatever is not a folder of this user named run-* with Muster's lock file in it.
// A folder that goes is renamed first, so that a removal that was cut short (a file server, an end
// of the process) is gone on with by the next start.
//
// Thread rule: free functions any thread, LogKeeper the io thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "agent/shell/log_rules.h"
#include "agent/shell/unique_fd.h"
#include "proto/base/ids.h"

namespace muster::agent {

// Marks a run's folder as used for as long as the descriptor is open: a shared lock on a file in
// it, since agents of several nodes may use one folder, and file servers know no locks of folders.
// Invalid where that cannot be; a folder without the file is never removed.
UniqueFd lock_run_folder(const std::string& path);

struct KeepReport {
  std::size_t removed = 0;
  std::size_t stuck = 0;  // could not be removed, or not all of it
};

// Does it. `own`: the folder's name of the run that starts, which counts whether it is there or
// not. Takes as long as the file system does.
KeepReport remove_old_runs(const std::string& job_path, const std::string& own, const LogKeep& keep,
                           std::int64_t now_unix_s);

// Does it once, in a thread of its own that nobody waits for.
class LogKeeper {
 public:
  // `say` takes a line about what was removed, on the io thread.
  LogKeeper(boost::asio::io_context& io, LogKeep keep, std::function<void(std::string)> say);
  ~LogKeeper();
  LogKeeper(const LogKeeper&) = delete;
  LogKeeper& operator=(const LogKeeper&) = delete;

  // The first call begins, where there is anything to do.
  void run_started(const std::string& job_path, const std::string& run_path);

 private:
  struct State;
  LogKeep keep_;
  bool started_ = false;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
