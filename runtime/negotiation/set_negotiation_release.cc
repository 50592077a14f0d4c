// The half of SetNegotiation that releases what is ready, and gives it bits in the cache.
#include <algorithm>
#include <utility>

#include "runtime/negotiation/set_negotiation.h"
#include "runtime/wire/codec.h"

namespace hvd::negotiation {

using wire::CacheBit;
using wire::Response;

namespace {

constexpr std::size_t kBitPartBytes = 16;

bool is_cached_kind(OpType op) {
  return op == OpType::kAllreduce || op == OpType::kAllgather || op == OpType::kAdasum || op == OpType::kAlltoall;
}

// Whether every member that may run it again says so with the same request.
bool can_be_cached(const Response& response) {
  return is_cached_kind(response.op) && !response.is_error() && response.joined.empty();
}

}  // namespace

void SetNegotiation::on_batch_done() {
  if (in_flight_ > 0) --in_flight_;
}

bool SetNegotiation::may_release(TimePoint now) const {
  if (ready_.empty() || (max_in_flight_ > 0 && in_flight_ >= max_in_flight_)) return false;
  return now - ready_since_ >= delay_;
}

std::optional<TimePoint> SetNegotiation::release_deadline() const {
  if (ready_.empty() || (max_in_flight_ > 0 && in_flight_ >= max_in_flight_)) return std::nullopt;
  return ready_since_ + delay_;
}

std::size_t SetNegotiation::size_of(const Ready& item) const {
  if (const auto* hit = std::get_if<wire::CacheHit>(&item)) return kBitPartBytes + hit->elements.size();
  const auto& full = std::get<InFull>(item);
  return wire::encoded_size_bound(full.responses[full.released]) + 2 * kBitPartBytes;
}

void SetNegotiation::release(TimePoint now, bool flush, std::uint64_t& next_bit, std::size_t& room,
                             std::vector<wire::DecisionItem>& items) {
  if (flush ? ready_.empty() : !may_release(now)) return;
  bool is_run = false;  // what has its result already takes no time, and so no turn
  items.reserve(std::min(items.size() + ready_.size(), wire::kMaxItems));
  // A response may bring two evictions along.
  while (!ready_.empty() && items.size() + 3 <= wire::kMaxItems) {
    const std::size_t size = size_of(ready_.front());
    if (room < size && !items.empty()) break;  // a single large response may exceed the budget
    room -= std::min(room, size);
    is_run |= release_one(next_bit, room, items);
  }
  if (is_run) ++in_flight_;
}

bool SetNegotiation::release_one(std::uint64_t& next_bit, std::size_t& room, std::vector<wire::DecisionItem>& items) {
  if (auto* hit = std::get_if<wire::CacheHit>(&ready_.front())) {
    const bool is_run = hit->elements.empty();
    cache_.touch(hit->bit);
    items.emplace_back(std::move(*hit));
    ready_.pop_front();
    return is_run;
  }
  auto& full = std::get<InFull>(ready_.front());
  if (full.released == 0) give_bit(full, next_bit, room, items);
  Response response = std::move(full.responses[full.released++]);
  // Who knew the first of a group in the decision before may have called its bit stale since.
  if (cache_.find(full.bit) != nullptr) response.bit = full.bit;
  if (response.op == OpType::kJoin) {
    joins_.reset();
    join_ready_ = false;
  }
  if (full.released == full.responses.size()) ready_.pop_front();
  items.emplace_back(std::move(response));
  return true;
}

// One for all of them: a group whose members do not all run well and alike has none.
void SetNegotiation::give_bit(InFull& ready, std::uint64_t& next_bit, std::size_t& room,
                              std::vector<wire::DecisionItem>& items) {
  const Response& first = ready.responses.front();
  const std::size_t size = std::max<std::size_t>(first.group_size, 1);
  if (ready.responses.size() != size || cache_.capacity() == 0 || !std::ranges::all_of(ready.responses, can_be_cached))
    return;
  CoordinatorCache::Cached cached{CacheBit{next_bit}, first.op, {}};
  cached.names.reserve(size);
  for (const Response& each : ready.responses) cached.names.push_back(each.name);
  const auto inserted = cache_.insert(std::move(cached), wire::kMaxItems - items.size() - 2);
  misses_cache_ |= inserted.was_missed;
  for (const CacheBit old : inserted.evicted) items.emplace_back(wire::Evict{old});
  room -= std::min(room, inserted.evicted.size() * kBitPartBytes);
  if (inserted.stored) ready.bit = CacheBit{next_bit++};
}

bool SetNegotiation::take_small_cache() {
  if (!misses_cache_ || small_cache_reported_) return false;
  small_cache_reported_ = true;
  return true;
}

}  // namespace hvd::negotiation
