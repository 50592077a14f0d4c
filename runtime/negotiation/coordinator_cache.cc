#include "runtime/negotiation/coordinator_cache.h"

#include <functional>
#include <utility>

#include "runtime/base/check.h"

namespace hvd::negotiation {

using wire::CacheBit;
using wire::value;

void UseHistory::put(const std::string& name, std::uint64_t when) {
  const std::size_t hash = std::hash<std::string>{}(name);
  last_[hash] = when;
  uses_.push_back({when, hash});
  while (uses_.size() > kNames) {
    const auto at = last_.find(uses_.front().name);
    if (at != last_.end() && at->second == uses_.front().when) last_.erase(at);
    uses_.pop_front();
  }
}

std::optional<std::uint64_t> UseHistory::take(const std::string& name) {
  const auto at = last_.find(std::hash<std::string>{}(name));
  if (at == last_.end()) return std::nullopt;
  const std::uint64_t when = at->second;
  last_.erase(at);
  return when;
}

bool CoordinatorCache::make_room(const std::string& name, Inserted& result) {
  if (entries_.size() < capacity_) return true;
  result.full = true;
  const std::optional<std::uint64_t> last_use = history_.take(name);
  const auto victim = order_.begin();
  if (victim == order_.end() || (last_use && victim->used > *last_use)) return false;
  const CacheBit old = victim->response.bit;
  history_.put(victim->response.name, victim->used);
  erase(old);
  result.evicted.push_back(old);
  return true;
}

CoordinatorCache::Inserted CoordinatorCache::insert(const wire::Response& response) {
  HVD_CHECK(response.bit != CacheBit::kNone && !entries_.contains(value(response.bit)),
            "a cached response needs a new bit");
  Inserted result;
  if (const auto same = by_name_.find(response.name); same != by_name_.end()) {
    const CacheBit old = same->second;
    if (!erase(old)) return result;
    result.evicted.push_back(old);
  }
  ++uses_;
  if (!make_room(response.name, result)) {
    if (capacity_ > 0) history_.put(response.name, uses_);
    return result;
  }
  order_.push_back({response, uses_, false});
  entries_.emplace(value(response.bit), std::prev(order_.end()));
  by_name_[response.name] = response.bit;
  result.stored = true;
  return result;
}

const wire::Response* CoordinatorCache::find(CacheBit bit) const {
  const auto at = entries_.find(value(bit));
  return at == entries_.end() ? nullptr : &at->second->response;
}

void CoordinatorCache::pin(CacheBit bit) {
  const auto at = entries_.find(value(bit));
  if (at == entries_.end() || std::exchange(at->second->pinned, true)) return;
  pinned_.splice(pinned_.end(), order_, at->second);
}

void CoordinatorCache::touch(CacheBit bit) {
  const auto at = entries_.find(value(bit));
  if (at == entries_.end()) return;
  at->second->used = ++uses_;
  order_.splice(order_.end(), std::exchange(at->second->pinned, false) ? pinned_ : order_, at->second);
}

bool CoordinatorCache::erase(CacheBit bit) {
  const auto at = entries_.find(value(bit));
  if (at == entries_.end() || at->second->pinned) return false;
  by_name_.erase(at->second->response.name);
  order_.erase(at->second);
  entries_.erase(at);
  return true;
}

}  // namespace hvd::negotiation
