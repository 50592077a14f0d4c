#pragma once

#include <condition_variable>
#include <map>
#include <span>
#include <string>

#include "runtime/base/deadline.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/transport/net/stream.h"

namespace hvd::transport {

struct ControlStream {
  Stream stream;
  std::string host;
};

// Control connections that children have made, until connect_control() takes them. Filled by hvd-net, emptied by the
// thread that runs init(). Thread-safe.
class ControlInbox {
 public:
  // A later connection of the same rank replaces an earlier one: the child has given that one up.
  void put(int rank, ControlStream stream) HVD_EXCLUDES(mutex_);
  // Waits until each of `ranks` is there and takes them. kTimeout names those that are missing.
  Result<std::map<int, ControlStream>> take(std::span<const int> ranks, Deadline deadline) HVD_EXCLUDES(mutex_);
  // Wakes take() for good.
  void abort(const Status& why) HVD_EXCLUDES(mutex_);

 private:
  std::string missing(std::span<const int> ranks) const HVD_REQUIRES(mutex_);

  Mutex mutex_;
  std::condition_variable_any changed_;
  std::map<int, ControlStream> streams_ HVD_GUARDED_BY(mutex_);
  Status aborted_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::transport
