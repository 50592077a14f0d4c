#pragma once

#include <set>
#include <vector>

namespace hvd::launcher {

// The children of a process, from /proc. Empty when it is gone.
std::vector<int> children_of(int pid);
// Its children, theirs, and so on; `pid` itself is not in it. A snapshot: processes come and go while it is taken.
std::vector<int> descendants_of(int pid);

// This process becomes the parent of descendants whose parent dies, so that none escapes by forking twice.
void become_subreaper();
// Reaps the children that ended, but not those in `known`: somebody else waits for these. How many are left that have
// not ended is not reported: see descendants_of.
void reap_adopted(const std::set<int>& known);

}  // namespace hvd::launcher
