// SPDX-License-Identifier: Apache-2.0
//
// Removing a folder with everything in it, by descriptors: nothing that others rename or link
// meanwhile leads out of it.
//
// Thread rule: any thread; nothing is shared. Only plain calls, safe in the guardian.
#pragma once

namespace muster::agent {

// Removes `name` in the folder `parent` (a descriptor), whatever it is. Rights that somebody took
// away from a folder below are given back first; links are removed, not followed; what is mounted
// below stays. True: it is not there any more.
bool remove_tree_at(int parent, const char* name);

}  // namespace muster::agent
