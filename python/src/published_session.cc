#include "python/src/published_session.h"

#include <unistd.h>

#include <mutex>
#include <optional>
#include <utility>

#include "runtime/base/fork_mark.h"

namespace hvd::python {

namespace {

// Never destroyed: kernels may still run when static destructors do.
struct Published {
  std::mutex mutex;
  std::shared_ptr<Session> session;
  std::optional<ForkMark> owner;  // empty until the first session
};

Published& published() {
  static auto* instance = new Published;
  return *instance;
}

constinit PublishedNumbers numbers_of_process;

void publish_numbers(const std::optional<JobTopology>& known) {
  PublishedNumbers& to = numbers_of_process;
  to.rank = known ? known->rank : -1;
  to.size = known ? known->size : -1;
  to.local_rank = known ? known->local_rank : -1;
  to.local_size = known ? known->local_size : -1;
  to.cross_rank = known ? known->cross_rank : -1;
  to.cross_size = known ? known->cross_size : -1;
  to.is_homogeneous = known ? static_cast<int>(known->is_homogeneous) : -1;
}

}  // namespace

const PublishedNumbers& published_numbers() { return numbers_of_process; }

Result<std::shared_ptr<Session>> published_session() {
  Published& slot = published();
  std::lock_guard lock(slot.mutex);
  if (!slot.owner) return Status::precondition("Horovod has not been initialized; use hvd.init().");
  if (slot.session == nullptr) return Status::aborted("Horovod has been shut down; use hvd.init() to start it again");
  if (!slot.owner->same_process()) return Status::aborted("a forked process cannot use the session of its parent");
  return slot.session;
}

void publish_session(std::shared_ptr<Session> session, const std::optional<JobTopology>& numbers) {
  publish_numbers(numbers);
  numbers_of_process.process = session ? ::getpid() : -1;
  Published& slot = published();
  {
    std::lock_guard lock(slot.mutex);
    slot.session.swap(session);
    if (slot.session != nullptr) slot.owner.emplace();
  }
  // What was there before goes outside the lock.
}

}  // namespace hvd::python
