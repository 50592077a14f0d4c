#include "runtime/engine/operation_table.h"

#include <utility>

namespace hvd::engine {

namespace {

wire::Request make_request(const Operation& operation, int rank) {
  wire::Request request;
  request.rank = rank;
  request.process_set = operation.process_set;
  request.op = operation.op;
  if (operation.op == OpType::kJoin) {
    request.name = wire::kJoinName;
    return request;
  }
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

std::size_t bytes_of(const Operation& operation) {
  return operation.input.data == nullptr ? 0 : operation.input.byte_size();
}

OperationTable::OperationTable(int rank, topology::ProcessSets sets, recorder::FlightRecorder& recorder)
    : recorder_(recorder), rank_(rank) {
  publish(std::move(sets));
  engine_.release();  // its thread has yet to come
}

Result<HandlePtr> OperationTable::add(Operation&& operation, const Take& take) {
  HVD_RETURN_IF_ERROR(prepare(operation));
  const auto pending = std::make_shared<PendingOperation>(std::move(operation));
  const TimePoint now = SteadyClock::now();
  HandlePtr handle;
  {
    const MutexLock lock(mutex_);
    if (closed_) return *closed_;
    HVD_ASSIGN_OR_RETURN(OpenSet* const open, open_set_of(pending->operation));
    HVD_RETURN_IF_ERROR(enter(*open, *pending));
    handle = store(pending, now);
  }
  if (!take || !take({&pending, 1})) submit({&pending, 1}, false);
  return handle;
}

void OperationTable::submit(std::span<const PendingOperationPtr> pending, bool renew) {
  std::vector<wire::Request> requests;
  requests.reserve(pending.size());
  for (const PendingOperationPtr& each : pending) requests.push_back(make_request(each->operation, rank_));
  wire::make_group(requests);
  const MutexLock lock(mutex_);
  if (fresh_.empty()) fresh_.reserve(pending.size());
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const Operation& operation = pending[i]->operation;
    const bool is_read = operation.op == OpType::kAllreduce && operation.input.device == kCpuDevice;
    fresh_.push_back({std::move(requests[i]), pending[i]->id, is_read ? operation.input.data : nullptr, renew});
  }
}

Result<std::vector<HandlePtr>> OperationTable::add_group(std::vector<Operation>&& operations, const Take& take) {
  for (Operation& operation : operations) HVD_RETURN_IF_ERROR(prepare(operation));
  HVD_RETURN_IF_ERROR(check_group(operations));
  const std::size_t count = operations.size();
  const auto group = std::make_shared<std::vector<PendingOperation>>(count);
  std::vector<PendingOperationPtr> members;
  members.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    (*group)[i].operation = std::move(operations[i]);
    members.emplace_back(group, &(*group)[i]);
  }
  std::vector<HandlePtr> handles;
  handles.reserve(count);
  const TimePoint now = SteadyClock::now();
  {
    const MutexLock lock(mutex_);
    if (closed_) return *closed_;
    HVD_ASSIGN_OR_RETURN(OpenSet* const open, open_set_of(group->front().operation));
    HVD_RETURN_IF_ERROR(enter_all(*open, *group));
    for (const PendingOperationPtr& member : members) handles.push_back(store(member, now));
  }
  if (!take || !take(members)) submit(members, false);
  return handles;
}

Result<OperationTable::OpenSet*> OperationTable::open_set_of(const Operation& operation) {
  const auto about = [&] {
    return " (" + (operation.op == OpType::kJoin ? std::string("join") : operation.name) + ")";
  };
  const auto at = open_.find(operation.process_set);
  if (at == open_.end() || at->second.closed) {
    return Status::invalid_argument("process set " + std::to_string(operation.process_set) + " is not registered" +
                                    about());
  }
  if (!at->second.set->contains(rank_)) {
    return Status::invalid_argument("rank " + std::to_string(rank_) + " is not a member of process set " +
                                    std::to_string(operation.process_set) + about());
  }
  return &at->second;
}

Status OperationTable::enter(OpenSet& open, PendingOperation& pending) {
  Operation& operation = pending.operation;
  if (operation.op == OpType::kJoin) {
    if (std::exchange(open.join_pending, true)) {
      return Status::invalid_argument("a join" + topology::of_set(open.set->id) + " is pending already");
    }
  } else {
    HVD_RETURN_IF_ERROR(prepare_in_set(operation, *open.set));
    if (!open.names.insert(operation.name).second) return pending_already(operation);
  }
  pending.set = open.set;
  return Status::ok();
}

Status OperationTable::enter_all(OpenSet& open, std::span<PendingOperation> group) {
  for (std::size_t i = 0; i < group.size(); ++i) {
    const Status entered = enter(open, group[i]);
    if (entered.is_ok()) continue;
    for (const PendingOperation& before : group.first(i)) leave(open, before.operation);
    for (const PendingOperation& before : group.first(i)) {
      if (before.operation.name == group[i].operation.name) return twice_in_group(before.operation);
    }
    return entered;
  }
  return Status::ok();
}

void OperationTable::leave(OpenSet& open, const Operation& operation) {
  if (operation.op == OpType::kJoin) {
    open.join_pending = false;
  } else {
    open.names.erase(operation.name);
  }
}

HandlePtr OperationTable::store(PendingOperationPtr pending, TimePoint now) {
  const Operation& operation = pending->operation;
  pending->id = static_cast<negotiation::OperationId>(next_id_++);
  pending->submitted = now;
  tally_.submitted(now);
  recorder_.record(recorder::Phase::kSubmitted, operation.op, operation.process_set, operation.name, now);
  const recorder::OperationRanges& ranges = recorder_.ranges();
  // While nobody can end it yet.
  if (ranges.is_active()) pending->range = ranges.start(operation.op, operation.name, bytes_of(operation));
  const std::uint64_t key = key_of(pending->id);
  HandlePtr handle(pending, &pending->handle);
  pending_.emplace(key, std::move(pending));
  return handle;
}

Status OperationTable::close_set(std::int32_t id) {
  const MutexLock lock(mutex_);
  if (closed_) return *closed_;
  const auto at = open_.find(id);
  if (at == open_.end() || at->second.closed) {
    return Status::invalid_argument("process set " + std::to_string(id) + " is not registered");
  }
  if (id == kGlobalProcessSet) return Status::invalid_argument("the global process set cannot be removed");
  at->second.closed = true;
  return Status::ok();
}

topology::ProcessSets OperationTable::sets() const {
  const MutexLock lock(mutex_);
  return sets_;
}

void OperationTable::publish(topology::ProcessSets sets) {
  check_engine();
  const MutexLock lock(mutex_);
  // An id may have gone from one set to another in one decision.
  std::erase_if(open_, [&](const auto& open) { return sets->find(open.first) != open.second.set.get(); });
  for (const topology::ProcessSetPtr& set : sets->sets()) {
    open_.try_emplace(set->id, set, nodes_);
  }
  sets_ = std::move(sets);
}

std::vector<negotiation::OwnRequest> OperationTable::fetch() {
  check_engine();
  const MutexLock lock(mutex_);
  return std::exchange(fresh_, {});
}

PendingOperationPtr OperationTable::find(negotiation::OperationId id) const {
  const MutexLock lock(mutex_);
  const auto at = pending_.find(key_of(id));
  return at == pending_.end() ? nullptr : at->second;
}

std::vector<PendingOperationPtr> OperationTable::start(std::span<const negotiation::OwnResponse> released) {
  check_engine();
  std::vector<PendingOperationPtr> started;
  started.reserve(released.size());
  std::size_t count = 0;  // that did not run before
  const TimePoint now = SteadyClock::now();
  const MutexLock lock(mutex_);
  for (const negotiation::OwnResponse& each : released) {
    const auto at = pending_.find(key_of(each.operation));
    started.push_back(at == pending_.end() ? nullptr : at->second);
    if (started.back() != nullptr && !std::exchange(started.back()->running, true)) ++count;
  }
  tally_.started(count, now);
  return started;
}

void OperationTable::put_back(std::span<const negotiation::OwnResponse> started) {
  const MutexLock lock(mutex_);
  for (const negotiation::OwnResponse& each : started) {
    const auto at = pending_.find(key_of(each.operation));
    if (at != pending_.end()) at->second->running = false;
  }
}

OperationTable::Oldest OperationTable::oldest(TimePoint then) const {
  const MutexLock lock(mutex_);
  PendingOperation* of_all = nullptr;
  PendingOperation* waited_for = nullptr;
  const auto take_older = [](PendingOperation*& oldest, PendingOperation* other) {
    if (oldest == nullptr || other->id < oldest->id) oldest = other;
  };
  for (const auto& [id, pending] : pending_) {
    if (pending->running || pending->submitted > then) continue;
    take_older(of_all, pending.get());
    const bool is_waited_for = pending->handle.state().waiters.load(std::memory_order_relaxed) > 0;
    if (is_waited_for) take_older(waited_for, pending.get());
  }
  const auto about = [](const PendingOperation* pending) -> std::optional<BlockedOn> {
    if (pending == nullptr) return std::nullopt;
    const Operation& operation = pending->operation;
    return BlockedOn{operation.process_set, operation.op, operation.name};
  };
  return {about(of_all), about(waited_for)};
}

rendezvous::RankWork OperationTable::work() const {
  const MutexLock lock(mutex_);
  return tally_.work(SteadyClock::now());
}

bool OperationTable::empty() const {
  const MutexLock lock(mutex_);
  return pending_.empty();
}

std::vector<std::string> OperationTable::pending() const {
  std::map<std::uint64_t, std::string> names;  // ids count up
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, pending] : pending_) names.emplace(id, pending->operation.name);
  }
  std::vector<std::string> ordered;
  ordered.reserve(names.size());
  for (auto& [id, name] : names) ordered.push_back(std::move(name));
  return ordered;
}

}  // namespace hvd::engine
