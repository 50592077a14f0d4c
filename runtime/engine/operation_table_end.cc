// How operations leave the table: one by one as they complete, or all at once when the session ends.
#include <algorithm>
#include <array>
#include <new>
#include <span>
#include <utility>

#include "runtime/engine/operation_table.h"

namespace hvd::engine {

bool OperationTable::forget(const PendingOperation& pending, bool is_well, TimePoint now) {
  const auto at = pending_.find(key_of(pending.id));
  if (at == pending_.end()) return false;
  // The id of a removed set may belong to another one by now.
  const auto open = open_.find(pending.operation.process_set);
  if (open != open_.end() && open->second.set == pending.set) leave(open->second, pending.operation);
  if (!pending.running) tally_.started(1, now);
  if (is_well) tally_.ended(pending.operation, bytes_of(pending.operation));
  pending_.erase(at);
  return true;
}

void OperationTable::finish(PendingOperation& pending, const Status& status, TimePoint now) noexcept {
  Operation& operation = pending.operation;
  try {
    recorder_.record(status.is_ok() ? recorder::Phase::kDone : recorder::Phase::kFailed, operation.op,
                     operation.process_set, operation.name, now);
    recorder_.timeline().ended(operation.op, operation.process_set, operation.name, operation.input.dtype,
                               pending.handle.state().output_shape, status);
  } catch (const std::bad_alloc&) {  // who waits for it does so for its end, not for a record of that
  }
  if (recorder_.ranges().is_active()) recorder_.ranges().end(operation.op, pending.range);
  // Before the handle is done: a waiter may look for its tensor's references right after.
  operation.allocate_output = nullptr;
  if (pending.handle.state().end == nullptr) operation.keep_alive.reset();
  operation.ready.reset();
  if (operation.op == OpType::kJoin && operation.process_set == kGlobalProcessSet && status.is_ok()) ++joins_;
  const auto on_done = operation.on_done ? std::exchange(operation.on_done, nullptr) : nullptr;
  pending.handle.state().finish(status);
  if (on_done) on_done(pending.handle);
}

// After hand_over().
void OperationTable::finish_later(PendingOperation& pending, const Status& status) {
  Operation& operation = pending.operation;
  operation.keep_alive.reset();
  if (status.is_ok()) return;
  Handle::State& state = pending.handle.state();
  state.late_failure = Handle::State::told(status);
  state.failed_later.store(true, std::memory_order_release);
  recorder_.record(recorder::Phase::kFailed, operation.op, operation.process_set, operation.name, SteadyClock::now());
}

void OperationTable::hand_over(const std::vector<PendingOperationPtr>& operations,
                               const std::shared_ptr<collectives::cuda::Event>& end) {
  std::vector<PendingOperation*> mine;
  const TimePoint now = SteadyClock::now();
  {
    const MutexLock lock(mutex_);
    for (const PendingOperationPtr& pending : operations) {
      if (!forget(*pending, true, now)) continue;
      pending->handed_over = true;
      mine.push_back(pending.get());
    }
  }
  for (PendingOperation* pending : mine) {
    pending->handle.state().end = end;
    finish(*pending, Status::ok(), now);
  }
}

// Takes no memory: what ends may be a session without any.
void OperationTable::complete(std::span<const PendingOperationPtr> operations, const Status& status) {
  std::array<PendingOperation*, 64> ended;
  const TimePoint now = SteadyClock::now();
  while (!operations.empty()) {
    std::size_t mine = 0;
    std::size_t later = ended.size();  // from here on those that were handed over
    const auto some = operations.first(std::min(operations.size(), ended.size()));
    operations = operations.subspan(some.size());
    {
      const MutexLock lock(mutex_);
      for (const PendingOperationPtr& pending : some) {
        if (forget(*pending, status.is_ok(), now)) {
          ended[mine++] = pending.get();
        } else if (std::exchange(pending->handed_over, false)) {
          ended[--later] = pending.get();
        }
      }
    }
    for (PendingOperation* pending : std::span(ended).first(mine)) finish(*pending, status, now);
    for (PendingOperation* pending : std::span(ended).subspan(later)) finish_later(*pending, status);
  }
}

void OperationTable::complete(negotiation::OperationId id, const Status& status) {
  if (const PendingOperationPtr pending = find(id)) complete({&pending, 1}, status);
}

void OperationTable::close(const Status& why, const std::string& hint) {
  std::vector<PendingOperationPtr> orphans;
  {
    const MutexLock lock(mutex_);
    if (!closed_) closed_ = why;
    for (const auto& [id, pending] : pending_) {
      if (!pending->running) orphans.push_back(pending);
    }
  }
  if (hint.empty()) return complete(orphans, why);
  for (const PendingOperationPtr& pending : orphans) {
    const Operation& operation = pending->operation;
    complete({&pending, 1}, Status(why.code(), why.message() + " " + std::string(op_type_name(operation.op)) + " \"" +
                                                   operation.name + "\" was waiting for it. " + hint));
  }
}

}  // namespace hvd::engine
