#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "horovod/session.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread.h"
#include "runtime/wire/messages.h"

namespace hvd::engine {

// The changes of process sets that this rank has asked for and that are not decided yet. Framework threads ask, the
// engine fetches and completes. Thread-safe; owned by the session. It decides nothing: the coordinator does, when every
// rank has asked for the same; and it has no table of sets (OperationTable::sets). Invariant: each decision of the
// coordinator answers the oldest waiting handle, because every rank's requests are decided in the order in which it
// made them.
class SetChanges {
 public:
  explicit SetChanges(int world_size) : world_size_(world_size) {}

  // The handle is done when the change has been decided; its value is the new set's id (kAdd) or the number of sets
  // that were given (kStatic). Errors: kInvalidArgument for lists that are no sets of ranks of this job; the sticky
  // error.
  Result<HandlePtr> add(wire::SetChange change) HVD_EXCLUDES(mutex_);

  // For the engine: what was added since the last call, normalised.
  std::vector<wire::SetChange> fetch() HVD_EXCLUDES(mutex_);
  // Completes the handles of what was decided.
  void complete(const std::vector<wire::SetDecision>& decisions) HVD_EXCLUDES(mutex_);
  // Refuses everything from now on with `why` (the first reason stays) and completes what waits.
  void close(const Status& why) HVD_EXCLUDES(mutex_);

 private:
  ThreadChecker engine_;  // fetches and completes
  const int world_size_;
  Mutex mutex_;
  std::vector<wire::SetChange> fresh_ HVD_GUARDED_BY(mutex_);
  std::deque<HandlePtr> waiting_ HVD_GUARDED_BY(mutex_);
  std::optional<Status> closed_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::engine
