// SPDX-License-Identifier: Apache-2.0
//
// Whether a file of events can be written: asked before the job starts, since a run without the
// file that its script reads is worse than none.
#pragma once

#include <string>

namespace muster::launcher {

// Why events cannot be appended to `file` ({node} and {job} replaced; {run} is not known yet:
// then only its directory is looked at); empty: they can. Creates the file.
std::string event_file_trouble(const std::string& file, const std::string& node,
                               const std::string& job);

}  // namespace muster::launcher
