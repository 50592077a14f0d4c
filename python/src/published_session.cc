#include "python/src/published_session.h"

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/base/fork_mark.h"

namespace hvd::python {

namespace {

struct Published {
  const ForkMark process;
  const bool is_inherited = false;  // the parent of this process had a session
  std::mutex mutex{};
  std::shared_ptr<Session> session{};
  bool had_session = false;
};

// Never destroyed: kernels may still run when static destructors do. A forked child has one of its own, because a
// thread of its parent's may have held the mutex.
Published& published() {
  static std::atomic<Published*> current{new Published};
  Published* known = current.load();
  while (!known->process.same_process()) {
    auto* const own = new Published{.process = {}, .is_inherited = known->had_session || known->is_inherited};
    if (current.compare_exchange_strong(known, own)) return *own;
    delete own;
  }
  return *known;
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
  if (slot.session != nullptr) return slot.session;
  if (slot.had_session) return Status::aborted("Horovod has been shut down; use hvd.init() to start it again");
  if (slot.is_inherited) return Status::aborted("a forked process cannot use the session of its parent");
  return Status::precondition("Horovod has not been initialized; use hvd.init().");
}

void publish_session(std::shared_ptr<Session> session, const std::optional<JobTopology>& numbers) {
  publish_numbers(numbers);
  numbers_of_process.process = session ? ::getpid() : -1;
  Published& slot = published();
  {
    std::lock_guard lock(slot.mutex);
    slot.session.swap(session);
    slot.had_session = slot.had_session || slot.session != nullptr;
  }
  // What was there before goes outside the lock.
}

}  // namespace hvd::python
