#include "runtime/negotiation/worker.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/negotiation/small_tensor.h"
#include "runtime/wire/codec.h"

namespace hvd::negotiation {

using wire::CacheBit;
using wire::value;

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
  for (auto at = requests.begin(); at != requests.end();) {
    const std::size_t size = std::max<std::size_t>(at->request.group_size, 1);
    HVD_CHECK(size <= static_cast<std::size_t>(requests.end() - at), "a group is submitted whole");
    const auto end = at + static_cast<std::ptrdiff_t>(size);
    const std::int32_t id = at->request.process_set;
    const auto state = states_.find(id);
    if (stopped_ || state == states_.end()) {
      for (; at != end; ++at)
        failed.push_back({at->operation, stopped_ ? *stopped_ : removed_status(id, at->request.name)});
      continue;
    }
    using Members = std::vector<OwnRequest>;
    Submission own = size == 1 ? Submission(std::move(*at))
                               : Submission(Members(std::make_move_iterator(at), std::make_move_iterator(end)));
    at = end;
    if (state->second.join != OperationId::kNone) {
      state->second.held.push_back(std::move(own));
    } else {
      accept(state->second, std::move(own));
    }
  }
  return failed;
}

void Worker::accept(SetState& set, Submission&& own) {
  if (own.all().front().request.op == OpType::kJoin) {
    set.join = own.all().front().operation;
  } else {
    set.queue.push_back(std::move(own));
  }
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
  for (const auto& [bit, entry] : set.cache.entries()) {
    if (entry.sent) report.stale_bits.push_back(entry.bit);
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

// Queued -> sent as a bit when the cache has the same requests, else in full. A rank that has joined or leaves the set
// sends everything in full: its bits have to be settled before its join or removal is sent.
bool Worker::report_operations(SetState& set, TimePoint now, std::size_t& room, wire::Report& report) {
  while (!set.queue.empty()) {
    const Submission& own = set.queue.front();
    WorkerCache::Entry* const cached = set.reported > 0 ? nullptr : set.cache.find(own.all());
    if (cached != nullptr && !own.all().front().renew && set.join == OperationId::kNone && !set.leaving) {
      if (room < kBitBytes + wire::kMaxElementsBytes) return false;
      report_bit(set, *cached, now, room, report);
    } else if (!report_in_full(set, room, report)) {
      return false;
    }
    set.queue.pop_front();
  }
  return true;
}

// With its elements, if they are known and small.
void Worker::report_bit(SetState& set, WorkerCache::Entry& cached, TimePoint now, std::size_t& room,
                        wire::Report& report) {
  const Submission& own = cached.sent.emplace(std::move(set.queue.front()));
  ++set.sent_bits;
  start_waiting(cached, now);
  room -= kBitBytes;
  const std::size_t bytes = cached.small.bytes();
  const std::size_t sent = wire::kMessageByteBudget - room;  // at least as much as the elements before
  const bool is_read = std::ranges::all_of(own.all(), [](const OwnRequest& each) { return each.input != nullptr; });
  if (bytes == 0 || !is_read || sent + bytes > wire::kMaxReportElements ||
      sets_->find(cached.responses.front()->process_set)->size() > options_.max_members_in_tree) {
    report.ready_bits.push_back(cached.bit);
  } else {
    wire::ReadyTensor& ready = report.ready_tensors.emplace_back(wire::ReadyTensor{cached.bit, {}});
    for (std::size_t i = 0; i < cached.responses.size(); ++i) {
      read_elements(*cached.responses[i], own.all()[cached.places[i]].input, ready.elements);
    }
    room -= bytes;
  }
}

// The first of the queue, from where the last report had no room.
bool Worker::report_in_full(SetState& set, std::size_t& room, wire::Report& report) {
  const std::span<OwnRequest> members = set.queue.front().all();
  for (; set.reported < members.size(); ++set.reported) {
    OwnRequest& own = members[set.reported];
    const std::size_t most = wire::encoded_size_bound(own.request);
    if (room < most) return false;
    room -= most;
    if (set.reported == 0) set.cache.add_bits_of(members, report.stale_bits);
    report.requests.push_back(own.request);
    std::string name = own.request.name;
    SentFull sent{std::move(own), static_cast<std::uint32_t>(set.reported)};
    const bool is_new = set.sent_full.try_emplace(std::move(name), std::move(sent)).second;
    HVD_CHECK(is_new, "the table of operations let a pending name pass twice");
  }
  set.reported = 0;
  return true;
}

void Worker::report_long_waits(TimePoint now, wire::Report& report) {
  if (!options_.cached_wait_limit) return;
  while (!waiting_.empty() && waiting_.front().since + *options_.cached_wait_limit <= now) {
    const CacheBit bit = waiting_.front().bit;
    report.stale_bits.push_back(bit);
    SetState& set = states_.at(set_of_bit_.at(value(bit)));
    stop_waiting(*set.cache.find(bit));
  }
}

void Worker::start_waiting(WorkerCache::Entry& sent, TimePoint now) {
  if (unused_waits_.empty()) unused_waits_.emplace_back();
  waiting_.splice(waiting_.end(), unused_waits_, unused_waits_.begin());
  waiting_.back() = {now, sent.bit};
  sent.wait = std::prev(waiting_.end());
}

void Worker::stop_waiting(WorkerCache::Entry& sent) {
  if (!sent.wait) return;
  unused_waits_.splice(unused_waits_.end(), waiting_, *sent.wait);
  sent.wait.reset();
}

std::optional<Submission> Worker::take_sent(SetState& set, WorkerCache::Entry& sent) {
  if (!sent.sent) return std::nullopt;
  stop_waiting(sent);
  --set.sent_bits;
  return std::exchange(sent.sent, std::nullopt);
}

std::vector<FailedOperation> Worker::fail_all(const Status& why) {
  std::vector<FailedOperation> failed;
  if (stopped_) return failed;
  for (auto& [id, set] : states_) drop_set(set, [&](const std::string&) { return why; }, failed);
  stopped_ = why;
  return failed;
}

void Worker::drop_set(SetState& set, const Reason& why, std::vector<FailedOperation>& failed) {
  const auto fail = [&](const Submission& own, std::size_t from = 0) {
    for (const OwnRequest& each : own.all().subspan(from)) {
      failed.push_back({each.operation, why(each.request.name)});
    }
  };
  for (const auto& [name, sent] : set.sent_full) failed.push_back({sent.own.operation, why(name)});
  for (auto& [bit, entry] : set.cache.entries()) {
    if (const auto sent = take_sent(set, entry)) fail(*sent);
  }
  for (const Submission& own : set.queue) fail(own, std::exchange(set.reported, 0));
  for (const Submission& own : set.held) fail(own);
  if (set.join != OperationId::kNone) failed.push_back({set.join, why(wire::kJoinName)});
  set = SetState{};
}

}  // namespace hvd::negotiation
