#include "runtime/transport/control/control_inbox.h"

namespace hvd::transport {

void ControlInbox::put(int rank, ControlStream stream) {
  const MutexLock lock(mutex_);
  streams_.insert_or_assign(rank, std::move(stream));
  changed_.notify_all();
}

Result<std::map<int, ControlStream>> ControlInbox::take(std::span<const int> ranks, Deadline deadline) {
  const MutexLock lock(mutex_);
  for (;;) {
    if (!aborted_.is_ok()) return aborted_;
    const std::string absent = missing(ranks);
    if (absent.empty()) break;
    if (changed_.wait_until(mutex_, deadline.when()) == std::cv_status::timeout && deadline.expired()) {
      return Status::timeout("rank" + absent + " did not connect in time");
    }
  }
  std::map<int, ControlStream> taken;
  for (const int rank : ranks) taken.insert(streams_.extract(rank));
  return taken;
}

void ControlInbox::abort(const Status& why) {
  const MutexLock lock(mutex_);
  if (aborted_.is_ok()) aborted_ = why;
  changed_.notify_all();
}

std::string ControlInbox::missing(std::span<const int> ranks) const {
  std::string absent;
  for (const int rank : ranks) {
    if (!streams_.contains(rank)) absent += " " + std::to_string(rank);
  }
  return absent;
}

}  // namespace hvd::transport
