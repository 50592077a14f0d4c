#include "runtime/engine/operation_table.h"

#include <utility>

#include "runtime/engine/handle_state.h"
#include "runtime/engine/operation_checks.h"

namespace hvd::engine {

namespace {

wire::Request make_request(const Operation& operation, int rank) {
  wire::Request request;
  request.rank = rank;
  request.process_set = operation.process_set;
  request.op = operation.op;
  request.dtype = operation.input.dtype;
  request.reduce_op = operation.reduce_op;
  request.device = operation.input.device;
  request.root_rank = operation.root_rank;
  request.prescale = operation.prescale;
  request.postscale = operation.postscale;
  request.shape = operation.input.shape;
  request.name = operation.name;
  return request;
}

}  // namespace

OperationTable::OperationTable(int rank, const topology::ProcessSetTable& sets, recorder::FlightRecorder& recorder)
    : recorder_(recorder), rank_(rank), queue_(rank, sets) {}

Result<std::vector<HandlePtr>> OperationTable::add(std::vector<Operation> operations) {
  std::vector<negotiation::Submission> submissions;
  std::vector<EntryPtr> entries;
  std::vector<HandlePtr> handles;
  for (Operation& operation : operations) {
    HVD_RETURN_IF_ERROR(prepare(operation));
    submissions.push_back({make_request(operation, rank_), negotiation::EntryId::kNone});
    entries.push_back(std::make_shared<Entry>(
        Entry{negotiation::EntryId::kNone, std::move(operation), std::make_shared<Handle>()}));
    handles.push_back(entries.back()->handle);
  }
  if (entries.empty()) return Status::invalid_argument("an empty group of tensors");

  std::lock_guard lock(mutex_);
  if (closed_) return *closed_;
  for (const EntryPtr& entry : entries) {
    Operation& operation = entry->operation;
    const int members = operation.op == OpType::kAlltoall ? queue_.set_size(operation.process_set) : 0;
    if (members > 0) HVD_RETURN_IF_ERROR(prepare_splits(operation, members));
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i]->id = static_cast<negotiation::EntryId>(next_id_++);
    submissions[i].entry = entries[i]->id;
  }
  const Operation& first = entries.front()->operation;
  if (first.op == OpType::kJoin) {
    HVD_RETURN_IF_ERROR(queue_.add_join(first.process_set, entries.front()->id));
  } else {
    HVD_RETURN_IF_ERROR(queue_.add(std::move(submissions)));
  }
  for (const EntryPtr& entry : entries) {
    entry->set_context = queue_.context_of(entry->operation.process_set);
    slots_.emplace(static_cast<std::uint64_t>(entry->id), Slot{entry, false});
    recorder_.record(recorder::Phase::kSubmitted, entry->operation.op, entry->operation.process_set,
                     entry->operation.name);
  }
  return handles;
}

Status OperationTable::close_set(std::int32_t id) {
  std::lock_guard lock(mutex_);
  if (closed_) return *closed_;
  return queue_.close_set(id);
}

std::vector<negotiation::Submission> OperationTable::fetch() {
  std::lock_guard lock(mutex_);
  return queue_.fetch();
}

EntryPtr OperationTable::find(negotiation::EntryId id) {
  std::lock_guard lock(mutex_);
  const auto it = slots_.find(static_cast<std::uint64_t>(id));
  return it == slots_.end() ? nullptr : it->second.entry;
}

void OperationTable::mark_running(const EntryPtr& entry) {
  std::lock_guard lock(mutex_);
  const auto it = slots_.find(static_cast<std::uint64_t>(entry->id));
  if (it != slots_.end()) it->second.running = true;
}

void OperationTable::finish(const EntryPtr& entry, Status status) {
  Operation& operation = entry->operation;
  recorder_.record(status.is_ok() ? recorder::Phase::kDone : recorder::Phase::kFailed, operation.op,
                   operation.process_set, operation.name);
  // Before the handle is done: a waiter may look for its tensor's references right after.
  operation.allocate_output = nullptr;
  operation.keep_alive.reset();
  const auto on_done = std::exchange(operation.on_done, nullptr);
  entry->handle->state().finish(std::move(status));
  if (on_done) on_done(*entry->handle);
}

void OperationTable::complete(const EntryPtr& entry, Status status) {
  {
    std::lock_guard lock(mutex_);
    if (slots_.erase(static_cast<std::uint64_t>(entry->id)) == 0) return;
    const Operation& operation = entry->operation;
    if (queue_.context_of(operation.process_set) == entry->set_context) {
      if (operation.op == OpType::kJoin) {
        queue_.complete_join(operation.process_set);
      } else {
        queue_.complete(operation.process_set, operation.name);
      }
    }
  }
  finish(entry, std::move(status));
}

void OperationTable::complete(negotiation::EntryId id, const Status& status) {
  if (const EntryPtr entry = find(id)) complete(entry, status);
}

void OperationTable::close(const Status& why) {
  std::vector<EntryPtr> orphans;
  {
    std::lock_guard lock(mutex_);
    if (!closed_) closed_ = why;
    for (const auto& [id, slot] : slots_) {
      if (!slot.running) orphans.push_back(slot.entry);
    }
  }
  for (const EntryPtr& entry : orphans) complete(entry, why);
}

void OperationTable::apply(const std::vector<wire::SetDecision>& decisions) {
  std::lock_guard lock(mutex_);
  for (const wire::SetDecision& decision : decisions) {
    if (decision.error != StatusCode::kOk) continue;
    for (const auto& set : decision.entries) {
      if (decision.kind == wire::SetChange::Kind::kRemove) {
        (void)queue_.close_set(set.id);  // unknown: this rank closed it when it asked for the removal
      } else if (!set.existed) {
        queue_.open_set({set.id, set.context_id, set.ranks});
      }
    }
  }
}

}  // namespace hvd::engine
