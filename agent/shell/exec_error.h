// SPDX-License-Identifier: Apache-2.0
//
// Why a program could not be executed, in words that say what to do about it. execve answers with
// a number that stands for several mistakes; the file, looked at again, tells which one.
//
// Thread rule: any thread. Reads at most the first few hundred bytes of a file and of its
// interpreter; never executes, never follows a pipe.
#pragma once

#include <string>

namespace muster::agent {

// "./train.py: Permission denied (it is not executable: chmod +x)" for the errno value `error`
// with which execve refused `path`. What the file does not tell is left out.
std::string explain_exec(const std::string& path, int error);

}  // namespace muster::agent
