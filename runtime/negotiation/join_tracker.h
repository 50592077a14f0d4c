#pragma once

#include "runtime/topology/rank_set.h"

namespace hvd::negotiation {

// Which members of one process set have joined. Loop-confined. Once all have, the last one is the join's result and a
// new round starts.
class JoinTracker {
 public:
  explicit JoinTracker(int set_size) : joined_(set_size) {}

  // False when that member has joined already (a protocol error of the rank).
  bool add(int set_rank) {
    if (!joined_.insert(set_rank)) return false;
    last_ = set_rank;
    return true;
  }
  bool any() const { return joined_.count() > 0; }
  bool all() const { return joined_.full(); }
  int last() const { return last_; }  // set rank; -1: none
  const topology::RankSet& joined() const { return joined_; }
  void reset() {
    joined_.clear();
    last_ = -1;
  }

 private:
  topology::RankSet joined_;
  int last_ = -1;
};

}  // namespace hvd::negotiation
