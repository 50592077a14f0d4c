// How operations leave the table: one by one as they complete, or all at once when the session ends.
#include <utility>

#include "runtime/engine/operation_table.h"

namespace hvd::engine {

bool OperationTable::forget(const Entry& entry) {
  const auto at = pending_.find(key_of(entry.id));
  if (at == pending_.end()) return false;
  // The id of a removed set may belong to another one by now.
  const auto open = open_.find(entry.operation.process_set);
  if (open != open_.end() && open->second.set == entry.set) leave(open->second, entry.operation);
  pending_.erase(at);
  return true;
}

void OperationTable::finish(Entry& entry, const Status& status) {
  Operation& operation = entry.operation;
  recorder_.record(status.is_ok() ? recorder::Phase::kDone : recorder::Phase::kFailed, operation.op,
                   operation.process_set, operation.name);
  // Before the handle is done: a waiter may look for its tensor's references right after.
  operation.allocate_output = nullptr;
  operation.keep_alive.reset();
  if (operation.op == OpType::kJoin && operation.process_set == kGlobalProcessSet && status.is_ok()) ++joins_;
  const auto on_done = std::exchange(operation.on_done, nullptr);
  entry.handle.state().finish(status);
  if (on_done) on_done(entry.handle);
}

void OperationTable::complete(const std::vector<EntryPtr>& entries, const Status& status) {
  std::vector<Entry*> mine;
  mine.reserve(entries.size());
  {
    const MutexLock lock(mutex_);
    for (const EntryPtr& entry : entries) {
      if (forget(*entry)) mine.push_back(entry.get());
    }
  }
  for (Entry* entry : mine) finish(*entry, status);
}

void OperationTable::complete(negotiation::OperationId id, const Status& status) {
  if (EntryPtr entry = find(id)) complete({std::move(entry)}, status);
}

void OperationTable::close(const Status& why, const std::string& hint) {
  std::vector<EntryPtr> orphans;
  {
    const MutexLock lock(mutex_);
    if (!closed_) closed_ = why;
    for (const auto& [id, entry] : pending_) {
      if (!entry->running) orphans.push_back(entry);
    }
  }
  if (hint.empty()) return complete(orphans, why);
  for (const EntryPtr& entry : orphans) {
    const Operation& operation = entry->operation;
    complete({entry}, Status(why.code(), why.message() + " " + std::string(op_type_name(operation.op)) + " \"" +
                                             operation.name + "\" was waiting for it. " + hint));
  }
}

}  // namespace hvd::engine
