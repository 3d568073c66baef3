// SPDX-License-Identifier: Apache-2.0
//
// A program that looks at one process (py-spy, gdb): started, listened to, and ended with its
// group. What it writes is kept, up to 1 MiB, so that two of them do not write into each other and
// none fills the disk.
//
// Its status may be read by a Supervisor, which reaps whatever child it does not know: the end is
// seen by pidfd, or by the pipe's end where there is no pidfd.
//
// Errors: a program that cannot be started is over at once, and its output says why.
// Thread rule: one thread for each Tool, any for ToolGroups::kill_all().
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <vector>

#include "agent/shell/unique_fd.h"

namespace muster::agent {

// The groups of tools that run, for who wants them to end while their thread hangs in a write.
class ToolGroups {
 public:
  void add(pid_t group, int pidfd);
  void remove(pid_t group);
  void kill_all();

 private:
  std::mutex guard_;
  std::map<pid_t, int> running_;
};

class Tool {
 public:
  // words[0]: its path. `groups` must outlive it.
  Tool(ToolGroups& groups, std::vector<std::string> words);
  ~Tool();  // kill()
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;

  // To wait for: goes_on() has something to do. -1: none (any more).
  int pipe() const { return pipe_.get(); }
  int pidfd() const { return pidfd_.get(); }
  const std::string& output() const { return output_; }
  // By this object, before its own end.
  bool killed() const { return killed_; }

  // Takes what it has written; false: it is over, and nothing of its group is left.
  bool goes_on();
  // Waits for 100 ms at most.
  void kill();

 private:
  void start(std::vector<std::string> words, int out);
  void read_output();
  void forget();

  ToolGroups& groups_;
  pid_t pid_ = -1;
  bool killed_ = false;
  UniqueFd pidfd_;
  UniqueFd pipe_;
  std::string output_;
};

}  // namespace muster::agent
