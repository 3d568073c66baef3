// SPDX-License-Identifier: Apache-2.0
//
// A process that even SIGKILL does not end: in a frozen control group of version 1 it sleeps
// uninterruptibly (state D) until somebody thaws it, as one does that waits for a disk.
#pragma once

#include <string>
#include <sys/types.h>

namespace muster::agent {

// A freezer group of the test's own. Root's, and only where that hierarchy is mounted: ask ready().
class Freezer {
 public:
  Freezer();
  ~Freezer();  // thaws, waits until what was in it has left, and removes it
  Freezer(const Freezer&) = delete;
  Freezer& operator=(const Freezer&) = delete;

  bool ready() const { return !path_.empty(); }
  // Returns when it is in state D. REQUIRES: ready().
  void freeze(pid_t process);
  // One thread alone, by its own number.
  void freeze_thread(pid_t thread);
  void thaw();

 private:
  bool write(const std::string& file, const std::string& text) const;
  void freeze_all();

  std::string path_;
};

}  // namespace muster::agent
