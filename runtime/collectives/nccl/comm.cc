#include "runtime/collectives/nccl/comm.h"

#include <string>
#include <system_error>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/collectives/cuda/event_watch.h"

namespace hvd::collectives::nccl {

void Comm::abort() {
  if (is_aborted_.exchange(true)) return;
  limit_ = Deadline::after(kAbortLimit);
  const auto run = [self = shared_from_this(), over = is_over_](const std::stop_token&) mutable {
    void* ending = nullptr;
    {
      const MutexLock lock(self->mutex);
      ending = std::exchange(self->handle, nullptr);
    }
    if (ending != nullptr) {
      const cuda::Device::Scope scope(*self->stream_->device());
      const Status status = self->library_->check(self->library_->calls().abort(ending), "ncclCommAbort", nullptr);
      if (!status.is_ok()) HVD_LOG(kWarning, "an NCCL communicator did not end well: ", status.message());
    }
    std::vector<cuda::EventPtr> held;
    {
      const MutexLock lock(self->mutex);
      self->puts_in_no_more_ = true;
      held = std::move(self->held_);
    }
    self->release_held(std::move(held));
    self.reset();  // who waits may look for what is left
    over->set();
  };
  try {
    start_thread("hvd-nccl-abort", run).detach();
  } catch (const std::system_error& error) {
    HVD_LOG(kWarning,
            "there is no thread to abort an NCCL communicator in, which stays with all that it uses: ", error.what());
    cuda::leave_for_good(shared_from_this());
  }
}

void Comm::hold_until_over(cuda::EventPtr end) {
  end->hold();
  {
    const MutexLock lock(mutex);
    if (!puts_in_no_more_) return held_.push_back(std::move(end));
  }
  release_held({std::move(end)});
}

// What cannot be recorded stays held: nobody can tell any more when its tensors are free.
void Comm::release_held(std::vector<cuda::EventPtr> held) const {
  for (const cuda::EventPtr& end : held) {
    const Status status = end->record(stream_->handle());
    if (!status.is_ok()) HVD_LOG(kWarning, "the end of a collective that was aborted: ", status.message());
  }
}

bool Comm::wait_for_abort() {
  while (!is_over_->is_set() && !limit_.expired()) is_over_->wait_for(limit_.remaining());
  if (is_over_->is_set()) return true;
  HVD_LOG(kWarning, "ncclCommAbort has not come back for ", std::to_string(kAbortLimit.count()),
          " ms: what NCCL uses of GPU ", std::to_string(stream_->device()->ordinal()),
          " is left to it, also when the process ends");
  return false;
}

}  // namespace hvd::collectives::nccl
