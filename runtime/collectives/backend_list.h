#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/collectives/backend.h"
#include "runtime/collectives/launch_order.h"

namespace hvd::collectives {

// The backends of one process set in order of preference. Which are in it, and their order, follows from what all ranks
// agreed on when they joined, so the list is the same on every member. Immutable; thread-safe as far as its backends
// are. Shared by the set's lane and whoever aborts it.
class BackendList {
 public:
  // Requires: at least one. `launches`: of the rank, where a backend takes device memory.
  explicit BackendList(std::vector<std::unique_ptr<CollectiveBackend>> backends,
                       std::shared_ptr<LaunchOrder> launches = nullptr);

  // The first backend that takes such calls. Pure, hence the same on all members.
  struct Choice {
    CollectiveBackend* backend = nullptr;  // null: nobody does
    std::string declined{};                // those asked before and why: "nccl: no library; shm: 2 hosts"
  };
  Choice choose(const CallTraits& call) const;

  // The place of a call in device memory among all that the rank starts there. Taken in the order of decisions.
  std::shared_ptr<LaunchTurn> next_turn() const { return launches_ ? launches_->next() : nullptr; }

  // All of them: which one is running, or will be, does not matter then.
  void abort(const Status& why) const;
  PeerProgress progress() const;

 private:
  const std::vector<std::unique_ptr<CollectiveBackend>> backends_;
  const std::shared_ptr<LaunchOrder> launches_;
};

}  // namespace hvd::collectives
