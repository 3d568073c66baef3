// SPDX-License-Identifier: Apache-2.0
//
// A terminal for a worker's output (--console pty), so that programs behave as if watched. Its
// line discipline adds nothing: what the worker writes comes out byte for byte. It is no session's
// controlling terminal: the kernel hangs such a one up when the session's leader ends, under the
// hands of what the worker left behind, which has its grace.
//
// Thread rule: any thread.
#pragma once

#include <optional>

#include "agent/shell/unique_fd.h"

namespace muster::agent {

struct Pty {
  UniqueFd master;  // ours: non-blocking; reads EIO when the worker's side is closed
  UniqueFd slave;   // the worker's
};

// nullopt, with errno set: no terminal is to be had. The size is that of `like`, if it is one.
std::optional<Pty> open_pty(int like);

// Gives `terminal` the size of `like`; no effect where either is none.
void copy_terminal_size(int like, int terminal);

}  // namespace muster::agent
