// SPDX-License-Identifier: Apache-2.0
//
// What an end of a worker says about who was first. Agents order by it what ended together on one
// node, the server what ended on several nodes too close to each other to be put in order by time.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/base/job.h"
#include "proto/base/messages.h"

namespace muster {

// Better evidence first.
enum class Evidence : std::uint8_t {
  kCrash,     // a signal of the kernel's, SIGKILL, OOM, a start that failed, a lost node
  kExit,      // a code of its own choosing
  kReaction,  // most often the answer to somebody else's end: an abort, SIGPIPE
  kLostPeer,  // … as it says itself: an abort or an exit with such words
};

// Whether what a worker wrote last says that it lost somebody: "Connection closed by peer",
// "BrokenPipeError", as sockets, gloo and NCCL put it. Reads the last lines only.
bool speaks_of_a_lost_peer(std::string_view stderr_tail);

// As a signal, or as the code 128+n in which a shell passes one on. REQUIRES: not succeeded.
Evidence evidence_of(const ExitStatus& status, std::string_view stderr_tail = {});
Evidence evidence_of(const Failure& failure);

// The signal by which it ended, or n for exit code 128+n; 0: neither.
int ending_signal(const ExitStatus& status);
int ending_signal(const Failure& failure);

// One that asks a process to stop, whoever runs it: HUP, INT, QUIT, TERM.
bool is_stop_signal(int signal);

// A signal that the kernel sends to a process for what it did itself: ILL, TRAP, ABRT, BUS, FPE,
// SEGV, SYS. Nobody who stops a worker sends these.
bool is_own_fault(int signal);

// False for what no lost connection does to a worker: the kernel's signals for a crash, SIGKILL
// and OOM, in an exit code of 128+n too, and starts that failed.
bool may_follow_a_lost_peer(const Failure& failure);

// The report of a failed worker as the record of its failure, its texts cut to what records hold.
// REQUIRES: !report.status.succeeded() or torn_down.
Failure to_failure(const WorkerExited& report, const NodeName& node);

}  // namespace muster
