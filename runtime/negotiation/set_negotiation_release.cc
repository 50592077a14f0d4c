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
  const auto* response = std::get_if<Response>(&item);
  if (const auto* hit = std::get_if<wire::CacheHit>(&item)) return kBitPartBytes + hit->elements.size();
  return response == nullptr ? kBitPartBytes : wire::encoded_size_bound(*response) + 2 * kBitPartBytes;
}

void SetNegotiation::release(TimePoint now, bool flush, std::uint64_t& next_bit, std::size_t& room,
                             std::vector<wire::DecisionItem>& items) {
  if (flush ? ready_.empty() : !may_release(now)) return;
  bool is_run = false;  // what has its result already takes no time, and so no turn
  // A response may bring two evictions along.
  while (!ready_.empty() && items.size() + 3 <= wire::kMaxItems) {
    const std::size_t size = size_of(ready_.front());
    if (room < size && !items.empty()) break;  // a single large response may exceed the budget
    room -= std::min(room, size);
    Ready item = std::move(ready_.front());
    ready_.pop_front();
    if (auto* response = std::get_if<Response>(&item)) {
      is_run = true;
      emit(std::move(*response), next_bit, items);
    } else {
      auto& hit = std::get<wire::CacheHit>(item);
      is_run |= hit.elements.empty();
      emit(std::move(hit), items);
    }
  }
  if (is_run) ++in_flight_;
}

void SetNegotiation::emit(Response response, std::uint64_t& next_bit, std::vector<wire::DecisionItem>& items) {
  if (response.op == OpType::kJoin) {
    joins_.reset();
    join_ready_ = false;
  }
  if (is_cached_kind(response.op) && !response.is_error() && response.joined.empty() && cache_.capacity() > 0) {
    response.bit = CacheBit{next_bit};
    const auto inserted = cache_.insert(response);
    cache_was_full_ |= inserted.full;
    for (const CacheBit old : inserted.evicted) items.emplace_back(wire::Evict{old});
    if (inserted.stored) {
      ++next_bit;
    } else {
      response.bit = CacheBit::kNone;
    }
  }
  items.emplace_back(std::move(response));
}

void SetNegotiation::emit(wire::CacheHit hit, std::vector<wire::DecisionItem>& items) {
  cache_.touch(hit.bit);
  items.emplace_back(std::move(hit));
}

bool SetNegotiation::take_cache_full() {
  if (!cache_was_full_ || cache_full_reported_) return false;
  cache_full_reported_ = true;
  return true;
}

}  // namespace hvd::negotiation
