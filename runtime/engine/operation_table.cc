#include "runtime/engine/operation_table.h"

#include <map>
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

Result<HandlePtr> OperationTable::add(Operation operation) {
  HVD_RETURN_IF_ERROR(prepare(operation));
  auto entry = std::make_shared<Entry>();
  entry->operation = std::move(operation);
  const MutexLock lock(mutex_);
  if (closed_) return *closed_;
  HVD_RETURN_IF_ERROR(prepare_members(entry->operation));
  negotiation::Submission submission = submission_of(*entry);
  if (entry->operation.op == OpType::kJoin) {
    HVD_RETURN_IF_ERROR(queue_.add_join(entry->operation.process_set, entry->id));
  } else {
    HVD_RETURN_IF_ERROR(queue_.add(std::move(submission)));
  }
  return keep(std::move(entry));
}

Result<std::vector<HandlePtr>> OperationTable::add_group(std::vector<Operation> operations) {
  if (operations.empty()) return Status::invalid_argument("an empty group of tensors");
  for (Operation& operation : operations) HVD_RETURN_IF_ERROR(prepare(operation));
  HVD_RETURN_IF_ERROR(check_group(operations));
  std::vector<EntryPtr> entries;
  for (Operation& operation : operations) {
    entries.push_back(std::make_shared<Entry>());
    entries.back()->operation = std::move(operation);
  }
  const MutexLock lock(mutex_);
  if (closed_) return *closed_;
  std::vector<negotiation::Submission> submissions;
  for (const EntryPtr& entry : entries) {
    HVD_RETURN_IF_ERROR(prepare_members(entry->operation));
    submissions.push_back(submission_of(*entry));
  }
  HVD_RETURN_IF_ERROR(queue_.add(std::move(submissions)));
  std::vector<HandlePtr> handles;
  handles.reserve(entries.size());
  for (EntryPtr& entry : entries) handles.push_back(keep(std::move(entry)));
  return handles;
}

Status OperationTable::prepare_members(Operation& operation) const {
  if (operation.op != OpType::kAlltoall) return Status::ok();
  const int members = queue_.set_size(operation.process_set);
  return members > 0 ? prepare_splits(operation, members) : Status::ok();
}

negotiation::Submission OperationTable::submission_of(Entry& entry) {
  entry.id = static_cast<negotiation::EntryId>(next_id_++);
  return {make_request(entry.operation, rank_), entry.id};
}

HandlePtr OperationTable::keep(EntryPtr entry) {
  const Operation& operation = entry->operation;
  entry->submitted = SteadyClock::now();
  entry->set_context = queue_.context_of(operation.process_set);
  recorder_.record(recorder::Phase::kSubmitted, operation.op, operation.process_set, operation.name);
  const auto id = static_cast<std::uint64_t>(entry->id);
  HandlePtr handle(entry, &entry->handle);
  slots_.emplace(id, Slot{std::move(entry), false});
  return handle;
}

Status OperationTable::close_set(std::int32_t id) {
  const MutexLock lock(mutex_);
  if (closed_) return *closed_;
  return queue_.close_set(id);
}

std::vector<negotiation::Submission> OperationTable::fetch() {
  const MutexLock lock(mutex_);
  return queue_.fetch();
}

EntryPtr OperationTable::find(negotiation::EntryId id) {
  const MutexLock lock(mutex_);
  const auto it = slots_.find(static_cast<std::uint64_t>(id));
  return it == slots_.end() ? nullptr : it->second.entry;
}

EntryPtr OperationTable::start(negotiation::EntryId id) {
  const MutexLock lock(mutex_);
  const auto it = slots_.find(static_cast<std::uint64_t>(id));
  if (it == slots_.end()) return nullptr;
  it->second.running = true;
  return it->second.entry;
}

bool OperationTable::forget(const Entry& entry) {
  if (slots_.erase(static_cast<std::uint64_t>(entry.id)) == 0) return false;
  const Operation& operation = entry.operation;
  if (queue_.context_of(operation.process_set) != entry.set_context) return true;
  if (operation.op == OpType::kJoin) {
    queue_.complete_join(operation.process_set);
  } else {
    queue_.complete(operation.process_set, operation.name);
  }
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

void OperationTable::complete(negotiation::EntryId id, const Status& status) {
  if (EntryPtr entry = find(id)) complete({std::move(entry)}, status);
}

void OperationTable::close(const Status& why, const std::string& hint) {
  std::vector<EntryPtr> orphans;
  {
    const MutexLock lock(mutex_);
    if (!closed_) closed_ = why;
    for (const auto& [id, slot] : slots_) {
      if (!slot.running) orphans.push_back(slot.entry);
    }
  }
  if (hint.empty()) return complete(orphans, why);
  for (const EntryPtr& entry : orphans) {
    const Operation& operation = entry->operation;
    complete({entry}, Status(why.code(), why.message() + " " + std::string(op_type_name(operation.op)) + " \"" +
                                             operation.name + "\" was waiting for it. " + hint));
  }
}

std::optional<BlockedOn> OperationTable::blocked(TimePoint then) {
  const MutexLock lock(mutex_);
  const Entry* oldest = nullptr;
  for (const auto& [id, slot] : slots_) {
    if (slot.running || slot.entry->submitted > then) continue;
    if (slot.entry->handle.state().waiters.load(std::memory_order_relaxed) == 0) continue;
    if (oldest == nullptr || slot.entry->id < oldest->id) oldest = slot.entry.get();
  }
  if (oldest == nullptr) return std::nullopt;
  const Operation& operation = oldest->operation;
  return BlockedOn{operation.process_set, operation.op, operation.name};
}

bool OperationTable::empty() {
  const MutexLock lock(mutex_);
  return slots_.empty();
}

void OperationTable::apply(const std::vector<wire::SetDecision>& decisions) {
  const MutexLock lock(mutex_);
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

std::vector<std::string> OperationTable::pending() const {
  std::map<std::uint64_t, std::string> names;  // ids count up
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, slot] : slots_) names.emplace(id, slot.entry->operation.name);
  }
  std::vector<std::string> ordered;
  ordered.reserve(names.size());
  for (auto& [id, name] : names) ordered.push_back(std::move(name));
  return ordered;
}

}  // namespace hvd::engine
