#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/collectives/backend.h"

namespace hvd::collectives {

// The backends of one process set in order of preference. Which are in it, and their order, follows from what all ranks
// agreed on when they joined, so the list is the same on every member. Immutable; thread-safe as far as its backends
// are. Shared by the set's lane and whoever aborts it.
class BackendList {
 public:
  // Requires: at least one.
  explicit BackendList(std::vector<std::unique_ptr<CollectiveBackend>> backends);

  // The first backend that takes such calls. Pure, hence the same on all members.
  struct Choice {
    CollectiveBackend* backend = nullptr;  // null: nobody does
    std::string declined{};                // those asked before and why: "nccl: no library; shm: 2 hosts"
  };
  Choice choose(const CallTraits& call) const;

  // All of them: which one is running, or will be, does not matter then.
  void abort(const Status& why) const;
  PeerProgress progress() const;

 private:
  const std::vector<std::unique_ptr<CollectiveBackend>> backends_;
};

}  // namespace hvd::collectives
