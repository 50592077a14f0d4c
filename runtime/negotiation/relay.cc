#include "runtime/negotiation/relay.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/negotiation/set_registry.h"
#include "runtime/wire/codec.h"

namespace hvd::negotiation {
namespace {

template <typename T>
void append(std::vector<T>& to, std::vector<T>&& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

bool overlap(const wire::RankRuns& a, const wire::RankRuns& b) {
  wire::RankRuns all = a;
  return !wire::merge_runs(all, b);
}

}  // namespace

Relay::Relay(topology::TreePlan plan, int rank, const topology::ProcessSetTable& sets)
    : subtree_size_(plan.subtree_size(rank)), bits_(plan, rank, sets), requests_(bits_) {
  HVD_CHECK(rank > 0, "the root is a coordinator, not a relay");
}

// In the order that the root will read: requests before the bits that are complete here, and both before a join, which
// flushes the requests of its set because it is about those before it.
Status Relay::add_report(int from_rank, wire::Report report, TimePoint now) {
  HVD_RETURN_IF_ERROR(bits_.check_senders(from_rank, report));
  const int unit = *bits_.unit_of(from_rank);
  append(out_.stale_bits, std::move(report.stale_bits));
  for (wire::MergedRequest& merged : report.requests) HVD_RETURN_IF_ERROR(requests_.add(std::move(merged), now));
  for (const wire::CacheBit bit : report.ready_bits) {
    if (bits_.report(bit, unit)) add_complete(bit);
  }
  for (wire::ReadyTensor& tensor : report.ready_tensors) {
    const wire::CacheBit bit = tensor.bit;
    HVD_ASSIGN_OR_RETURN(const bool is_complete, bits_.report(std::move(tensor), unit));
    if (is_complete) add_complete(bit);
  }
  for (const auto& join : report.joins) {
    requests_.flush(join.process_set);
    append(out_.ready_bits, bits_.join(join.process_set, join.rank));
  }
  if (joins_.empty()) joins_since_ = now;
  append(joins_, std::move(report.joins));
  for (wire::MergedChange& merged : report.set_changes) HVD_RETURN_IF_ERROR(add_change(std::move(merged), now));
  append(out_.shutdown_ranks, std::move(report.shutdown_ranks));
  for (wire::LostRank& lost : report.lost_ranks) add_lost(lost.rank, std::move(lost.message));
  for (wire::Wait& wait : report.waits) add_wait(std::move(wait), now);
  return Status::ok();
}

void Relay::add_complete(wire::CacheBit bit) {
  std::string elements = bits_.take_elements(bit);
  if (elements.empty() || elements_bytes_ + elements.size() > wire::kMaxReportElements)
    return out_.ready_bits.push_back(bit);
  elements_bytes_ += elements.size();
  out_.ready_tensors.push_back({bit, std::move(elements)});
}

// Joins the youngest equal change, unless that would overtake another one of the same ranks.
Status Relay::add_change(wire::MergedChange merged, TimePoint now) {
  if (merged.change.kind == wire::SetChange::Kind::kRemove) requests_.flush(merged.change.set_id);
  for (auto held = changes_.rbegin(); held != changes_.rend(); ++held) {
    if (overlap(held->merged.ranks, merged.ranks)) break;
    if (!same_change(held->merged.change, merged.change)) continue;
    HVD_CHECK(wire::merge_runs(held->merged.ranks, merged.ranks), "runs that overlap were sorted out");
    if (merged.change.rank < held->merged.change.rank) held->merged.change.rank = merged.change.rank;
    return Status::ok();
  }
  changes_.push_back({std::move(merged), now});
  return Status::ok();
}

bool Relay::may_leave(const HeldChange& held, TimePoint now) const {
  return wire::count_ranks(held.merged.ranks) >= subtree_size_ || held.since + RequestMerger::kHold <= now;
}

bool Relay::joins_may_leave(TimePoint now) const {
  if (joins_.empty()) return false;
  return joins_since_ + kJoinHold <= now || std::any_of(joins_.begin(), joins_.end(), [&](const auto& join) {
           return bits_.all_joined(join.process_set);
         });
}

void Relay::add_lost(int rank, std::string message) {
  if (out_.lost_ranks.size() >= wire::kMaxLostRanks) return;
  message.resize(std::min(message.size(), wire::kMaxTextBytes));
  out_.lost_ranks.push_back({rank, std::move(message)});
}

void Relay::add_wait(wire::Wait wait, TimePoint now) {
  const bool held = wait.kind == wire::Wait::Kind::kMoving;
  std::vector<wire::Wait>& waits = held ? moving_ : out_.waits;
  if (held && waits.empty()) moving_since_ = now;
  for (wire::Wait& other : waits) {
    if (other.same_wait(wait)) return other.merge(wait);
  }
  if (waits.size() < wire::kMaxWaits) waits.push_back(std::move(wait));
}

bool Relay::has_report(TimePoint now) const {
  if (!requests_.ready().empty() || !out_.empty()) return true;
  if (joins_may_leave(now)) return true;
  if (!changes_.empty() && may_leave(changes_.front(), now)) return true;
  if (!moving_.empty() && moving_since_ + RequestMerger::kHold <= now) return true;
  const auto due = requests_.next_deadline();
  return due && *due <= now;
}

std::optional<TimePoint> Relay::next_deadline() const {
  std::optional<TimePoint> next = requests_.next_deadline();
  const auto consider = [&next](TimePoint due) {
    if (!next || due < *next) next = due;
  };
  if (!joins_.empty()) consider(joins_since_ + kJoinHold);
  if (!changes_.empty()) consider(changes_.front().since + RequestMerger::kHold);
  if (!moving_.empty()) consider(moving_since_ + RequestMerger::kHold);
  return next;
}

// False when the report is full and requests are left.
bool Relay::take_requests(wire::Report& report, std::size_t& room) {
  for (auto& ready = requests_.ready(); !ready.empty(); ready.pop_front()) {
    const std::size_t most = wire::encoded_size_bound(ready.front());
    if (room < most && !report.requests.empty()) return false;
    room -= std::min(room, most);
    report.requests.push_back(std::move(ready.front()));
  }
  return true;
}

// Nothing overtakes the requests that are to leave: a join or a change is about the requests before it.
wire::Report Relay::take_report(TimePoint now) {
  wire::Report report;
  std::size_t room = wire::kMessageByteBudget;
  requests_.flush_due(now);
  if (!take_requests(report, room)) {
    report.stale_bits = std::exchange(out_.stale_bits, {});
    return report;
  }
  std::vector<wire::MergedRequest> requests = std::move(report.requests);
  report = std::exchange(out_, {});
  elements_bytes_ = 0;
  report.requests = std::move(requests);
  report.joins = std::exchange(joins_, {});
  while (!moving_.empty() && report.waits.size() < wire::kMaxWaits) {
    report.waits.push_back(std::move(moving_.back()));
    moving_.pop_back();
  }
  while (!changes_.empty() && may_leave(changes_.front(), now)) {
    const std::size_t most = wire::encoded_size_bound(changes_.front().merged);
    if (room < most && !report.set_changes.empty()) break;
    room -= std::min(room, most);
    report.set_changes.push_back(std::move(changes_.front().merged));
    changes_.pop_front();
  }
  return report;
}

Status Relay::on_decision(const wire::Decision& decision) {
  for (const wire::DecisionItem& item : decision.items) {
    if (const auto* response = std::get_if<wire::Response>(&item))
      requests_.forget(response->process_set, response->name);
    const auto* change = std::get_if<wire::SetDecision>(&item);
    if (change == nullptr || change->kind != wire::SetChange::Kind::kRemove) continue;
    for (const auto& entry : change->entries) requests_.drop(entry.id);
  }
  return bits_.on_decision(decision);
}

}  // namespace hvd::negotiation
