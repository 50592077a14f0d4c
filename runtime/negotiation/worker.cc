#include "runtime/negotiation/worker.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/negotiation/small_tensor.h"
#include "runtime/wire/codec.h"

namespace hvd::negotiation {

using wire::CacheBit;
using wire::value;
using Outcome = WorkerCache::Outcome;

namespace {
constexpr std::size_t kBitBytes = 12;  // a run of its own, at worst
}  // namespace

Status removed_status(std::int32_t process_set, const std::string& name) {
  return Status::aborted("Process set " + std::to_string(process_set) + " was removed while \"" + name +
                         "\" was pending in it; wait for the operations of a process set before removing it.");
}

Worker::Worker(const WorkerOptions& options, topology::ProcessSets sets) : options_(options), sets_(std::move(sets)) {
  for (const topology::ProcessSetPtr& set : sets_->sets()) {
    if (set->contains(options_.rank)) states_.try_emplace(set->id);
  }
}

std::vector<FailedOperation> Worker::submit(std::vector<OwnRequest> requests) {
  std::vector<FailedOperation> failed;
  for (OwnRequest& own : requests) {
    const std::int32_t id = own.request.process_set;
    const auto at = states_.find(id);
    if (stopped_) {
      failed.push_back({own.operation, *stopped_});
    } else if (at == states_.end()) {
      failed.push_back({own.operation, removed_status(id, own.request.name)});
    } else if (at->second.join != OperationId::kNone) {
      at->second.held.push_back(std::move(own));
    } else {
      accept(at->second, std::move(own));
    }
  }
  return failed;
}

void Worker::accept(SetState& set, OwnRequest own) {
  if (own.request.op == OpType::kJoin) {
    set.join = own.operation;
    return;
  }
  std::string name = own.request.name;
  const auto [at, fresh] = set.pending.try_emplace(std::move(name));
  HVD_CHECK(fresh, "the table of operations let a pending name pass twice");
  at->second.own = std::move(own);
  set.queue.push_back(&at->second);
}

Status Worker::check_set_change(const wire::SetChange& change) {
  std::size_t ranks = 0;
  for (const auto& list : change.rank_lists) ranks += list.size();
  if (change.rank_lists.size() > wire::kMaxSetChanges || ranks > wire::kMaxListedRanks) {
    return Status::invalid_argument(std::to_string(change.rank_lists.size()) + " process sets with " +
                                    std::to_string(ranks) + " ranks in all; at most " +
                                    std::to_string(wire::kMaxSetChanges) + " with " +
                                    std::to_string(wire::kMaxListedRanks) + " can be registered at once");
  }
  return Status::ok();
}

Status Worker::request_set_change(wire::SetChange change) {
  HVD_RETURN_IF_ERROR(check_set_change(change));
  if (change.kind == wire::SetChange::Kind::kRemove) {
    if (const auto at = states_.find(change.set_id); at != states_.end()) at->second.leaving = true;
  }
  if (change.kind == wire::SetChange::Kind::kStatic) {
    for (const auto& ranks : change.rank_lists) change.digests.push_back(wire::digest_of(ranks));
    static_lists_.push_back(change.rank_lists);
    if (options_.rank != 0) change.rank_lists.clear();  // the root has its own
  }
  change.rank = options_.rank;
  set_changes_.push_back(std::move(change));
  return Status::ok();
}

void Worker::request_shutdown() { shutdown_wanted_ = true; }

bool Worker::must_flush(const SetState& set) {
  return (set.join != OperationId::kNone || set.leaving) && set.sent_bits > 0 && !set.sent_bits_flushed;
}

bool Worker::can_send_join(const SetState& set) {
  return set.join != OperationId::kNone && !set.join_sent && set.queue.empty() && set.sent_bits == 0;
}

// A removal must not overtake the operations of its set.
bool Worker::can_send_change() const {
  if (set_changes_.empty()) return false;
  if (set_changes_.front().kind != wire::SetChange::Kind::kRemove) return true;
  const auto at = states_.find(set_changes_.front().set_id);
  return at == states_.end() || (at->second.queue.empty() && at->second.sent_bits == 0);
}

void Worker::flush_sent_bits(SetState& set, wire::Report& report) {
  for (const auto& [name, pending] : set.pending) {
    if (pending.state == State::kSentBit) report.stale_bits.push_back(pending.bit);
  }
  set.sent_bits_flushed = true;
}

bool Worker::has_report(TimePoint now) const {
  if (stopped_) return false;
  if (can_send_change() || (shutdown_wanted_ && !shutdown_sent_)) return true;
  if (const auto due = next_deadline(); due && *due <= now) return true;
  for (const auto& [id, set] : states_) {
    if (!set.queue.empty() || must_flush(set) || can_send_join(set)) return true;
  }
  return false;
}

std::optional<TimePoint> Worker::next_deadline() const {
  if (stopped_ || waiting_.empty() || !options_.cached_wait_limit) return std::nullopt;
  return waiting_.front().since + *options_.cached_wait_limit;
}

// The order matters to the root, which reads a report from its beginning: stale bits first, so that nothing in the
// report completes them; what was submitted before a join, a removal or the end before these; and nothing is split off
// that belongs before something in this report: a report that is full ends here, and the rest follows in the next one.
wire::Report Worker::take_report(TimePoint now) {
  wire::Report report;
  if (stopped_) return report;
  report_long_waits(now, report);
  std::size_t room = wire::kMessageByteBudget;
  for (auto& [id, set] : states_) {
    if (must_flush(set)) flush_sent_bits(set, report);
    if (!report_operations(set, now, room, report)) return report;
    if (can_send_join(set)) {
      report.joins.push_back({id, options_.rank});
      set.join_sent = true;
    }
  }
  if (can_send_change()) {  // one a report: each may be large
    report.set_changes.push_back(std::move(set_changes_.front()));
    set_changes_.pop_front();
  }
  if (shutdown_wanted_ && !shutdown_sent_) {
    report.shutdown_ranks.push_back(options_.rank);
    shutdown_sent_ = true;
  }
  return report;
}

bool Worker::report_operations(SetState& set, TimePoint now, std::size_t& room, wire::Report& report) {
  while (!set.queue.empty()) {
    Pending& pending = *set.queue.front();
    const std::size_t most = wire::encoded_size_bound(pending.own.request) + wire::kMaxElementsBytes;
    if (room < most) return false;
    report_one(set, pending, now, room, report);
    set.queue.pop_front();
  }
  return true;
}

// kQueued -> kSentBit when the cache has the same request, else kSentFull. A rank that has joined or leaves the set
// sends everything in full: its bits have to be settled before its join or removal is sent.
void Worker::report_one(SetState& set, Pending& pending, TimePoint now, std::size_t& room, wire::Report& report) {
  const wire::Request& request = pending.own.request;
  const auto [outcome, bit, cached] = set.cache.look_up(request);
  if (outcome == Outcome::kHit && !pending.own.renew && set.join == OperationId::kNone && !set.leaving) {
    ++set.sent_bits;
    pending.state = State::kSentBit;
    pending.bit = bit;
    pending.wait = waiting_.insert(waiting_.end(), {now, bit});
    report_ready(pending, *cached, room, report);
    return;
  }
  if (outcome != Outcome::kMiss) report.stale_bits.push_back(bit);
  pending.state = State::kSentFull;
  report.requests.push_back(request);
  room -= wire::encoded_size_bound(request);
}

// With its elements, if they are known and small.
void Worker::report_ready(const Pending& pending, const wire::Response& cached, std::size_t& room,
                          wire::Report& report) {
  room -= kBitBytes;
  const std::size_t bytes = pending.own.input == nullptr ? 0 : elements_bytes(cached);
  const std::size_t sent = wire::kMessageByteBudget - room;  // at least as much as the elements before
  if (bytes == 0 || sent + bytes > wire::kMaxReportElements ||
      sets_->find(cached.process_set)->size() > options_.max_members_in_tree) {
    report.ready_bits.push_back(pending.bit);
    return;
  }
  report.ready_tensors.push_back({pending.bit, read_elements(cached, pending.own.input)});
  room -= bytes;
}

void Worker::report_long_waits(TimePoint now, wire::Report& report) {
  if (!options_.cached_wait_limit) return;
  while (!waiting_.empty() && waiting_.front().since + *options_.cached_wait_limit <= now) {
    const CacheBit bit = waiting_.front().bit;
    report.stale_bits.push_back(bit);
    SetState& set = states_.at(set_of_bit_.at(value(bit)));
    stop_waiting(set.pending.at(set.cache.find(bit)->name));
  }
}

void Worker::stop_waiting(Pending& pending) {
  if (!pending.wait) return;
  waiting_.erase(*pending.wait);
  pending.wait.reset();
}

void Worker::leave_bit(SetState& set, Pending& pending) {
  stop_waiting(pending);
  --set.sent_bits;
}

std::vector<FailedOperation> Worker::fail_all(const Status& why) {
  std::vector<FailedOperation> failed;
  if (stopped_) return failed;
  for (auto& [id, set] : states_) drop_set(set, [&](const std::string&) { return why; }, failed);
  stopped_ = why;
  return failed;
}

void Worker::drop_set(SetState& set, const Reason& why, std::vector<FailedOperation>& failed) {
  for (auto& [name, pending] : set.pending) {
    stop_waiting(pending);
    failed.push_back({pending.own.operation, why(name)});
  }
  for (const OwnRequest& own : set.held) failed.push_back({own.operation, why(own.request.name)});
  if (set.join != OperationId::kNone) failed.push_back({set.join, why(wire::kJoinName)});
  set = SetState{};
}

}  // namespace hvd::negotiation
