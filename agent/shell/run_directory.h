// SPDX-License-Identifier: Apache-2.0
//
// Where a run's logs are (contracts §4):
//   BASE/<job>/run-<run id>/gen-<g>/rank-<r>/{stdout.log,stderr.log,error.json}, meta.json
//   BASE/<job>/run-<run id>/gen-<g>/{filtered_stdout.log,filtered_stderr.log}
//   BASE/<job>/run-<run id>/{agent.log,.lock}
//   BASE/<job>/latest -> run-<run id>
//   BASE/<job>/server/ of the node that hosts a multi-node job's server
// Folders are made when something goes there and at no other time: a run without a failure and
// without --redirects or --tee leaves nothing. Nothing is reused: run and generation are new each.
// While an agent uses a run's folder it holds a shared lock on the .lock in it; see log_keeper.h.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <sys/types.h>

#include <absl/status/statusor.h>

#include "agent/shell/unique_fd.h"
#include "proto/base/ids.h"

namespace muster::agent {

// $XDG_STATE_HOME/muster, else $HOME/.local/state/muster, else /tmp/muster-<uid>.
std::string default_log_dir(const std::map<std::string, std::string>& environment, uid_t uid);

// Whether a job's logs could be written below `base`; makes `base` where it is missing. For a
// refusal at the start: later trouble costs a line, not the job.
absl::Status check_log_dir(const std::string& base, const JobId& job);

// BASE/<job>/server, made where it is missing, for this user's eyes only: an embedded server's
// own folder.
absl::StatusOr<std::string> make_server_folder(const std::string& base, const JobId& job);

struct RankMeta {
  NodeName node;
  std::uint32_t rank = 0;
  std::uint32_t local_rank = 0;
  std::int64_t pid = 0;
};

class RunDirectory {
 public:
  // `base` "/dev/null": nothing is ever written, every make fails with FailedPrecondition.
  // `made` is called with the path each time a run's folder was made.
  RunDirectory(std::string base, JobId job, std::function<void(const std::string&)> made = {});

  bool off() const { return base_ == "/dev/null"; }

  // The run whose folders are meant from now on. Makes nothing.
  void set_run(RunId run);

  // Path of the run's folder; empty before set_run and where off().
  std::string run_path() const;
  // The same where the folder was made, empty where not.
  std::string made_run_path() const { return made_ ? run_path() : ""; }
  std::string generation_path(Generation generation) const;
  std::string rank_path(Generation generation, std::uint32_t rank) const;
  // BASE/<job>, whether it is there or not.
  const std::string& job_path() const { return job_path_; }

  // Make the folder, its parents and the `latest` link, and return its path. Repeating is cheap.
  absl::StatusOr<std::string> make_run();
  absl::StatusOr<std::string> make_generation(Generation generation);
  absl::StatusOr<std::string> make_rank(Generation generation, std::uint32_t rank);

  // meta.json of a rank, in its folder, which exists.
  absl::Status write_meta(Generation generation, const RankMeta& meta);

 private:
  absl::StatusOr<std::string> make_below(std::string path);
  absl::Status point_latest() const;

  std::string base_;
  std::string job_path_;
  RunId run_;
  std::function<void(const std::string&)> on_made_;
  UniqueFd lock_;  // of the run's folder, where it was made
  bool made_ = false;
};

}  // namespace muster::agent
