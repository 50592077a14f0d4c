#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "horovod/session.h"
#include "runtime/base/mutex.h"
#include "runtime/topology/process_set.h"
#include "runtime/wire/messages.h"

namespace hvd::engine {

// The changes of process sets that this rank has asked for and that are not decided yet, and the table of sets as the
// last decision left it. The meeting point of framework threads, which ask and look, and the engine, which applies.
// Thread-safe; owned by the session. It decides nothing: the coordinator does, when every rank has asked for the same.
// Invariant: each decision of the coordinator answers the oldest waiting handle, because every rank's requests are
// decided in the order in which it made them.
class SetChanges {
 public:
  explicit SetChanges(const topology::ProcessSetTable& sets);

  // The handle is done when the change has been decided; its value is the new set's id (kAdd) or the number of sets
  // that were given (kStatic). Errors: kInvalidArgument for lists that are no sets of ranks of this job; the sticky
  // error.
  Result<HandlePtr> add(wire::SetChange change) HVD_EXCLUDES(mutex_);

  // For the engine: what was added since the last call, normalised.
  std::vector<wire::SetChange> fetch() HVD_EXCLUDES(mutex_);
  // Follows the decisions and completes their handles.
  void apply(const std::vector<wire::SetDecision>& decisions) HVD_EXCLUDES(mutex_);
  // Refuses everything from now on with `why` (the first reason stays) and completes what waits.
  void close(const Status& why) HVD_EXCLUDES(mutex_);

  // Process set id -> global ranks.
  std::map<std::int32_t, std::vector<int>> sets() const HVD_EXCLUDES(mutex_);
  // Members of one set; 0 when there is none.
  int set_size(std::int32_t id) const HVD_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  topology::ProcessSetTable table_ HVD_GUARDED_BY(mutex_);
  std::vector<wire::SetChange> fresh_ HVD_GUARDED_BY(mutex_);
  std::deque<HandlePtr> waiting_ HVD_GUARDED_BY(mutex_);
  std::optional<Status> closed_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::engine
