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
  const std::optional<std::uint64_t> last_use = history_.take(name);
  result.was_missed = last_use.has_value();
  const auto victim = order_.begin();
  if (victim == order_.end() || (last_use && victim->used > *last_use)) return false;
  const CacheBit old = victim->cached.bit;
  history_.put(victim->cached.names.front(), victim->used);
  erase(old);
  result.evicted.push_back(old);
  return true;
}

bool CoordinatorCache::evict_names(const std::vector<std::string>& names, std::size_t most_evicted, Inserted& result) {
  for (const std::string& name : names) {
    const auto same = by_name_.find(name);
    if (same == by_name_.end()) continue;
    const CacheBit old = same->second;
    if (result.evicted.size() == most_evicted || !erase(old)) return false;
    result.evicted.push_back(old);
  }
  return true;
}

CoordinatorCache::Inserted CoordinatorCache::insert(Cached cached, std::size_t most_evicted) {
  HVD_CHECK(cached.bit != CacheBit::kNone && !entries_.contains(value(cached.bit)) && !cached.names.empty(),
            "what is cached needs a new bit and a name");
  Inserted result;
  if (!evict_names(cached.names, most_evicted, result)) return result;
  ++uses_;
  if (!make_room(cached.names.front(), result)) {
    if (capacity_ > 0) history_.put(cached.names.front(), uses_);
    return result;
  }
  for (const std::string& name : cached.names) by_name_[name] = cached.bit;
  const std::uint64_t bit = value(cached.bit);
  order_.push_back({std::move(cached), uses_, false});
  entries_.emplace(bit, std::prev(order_.end()));
  result.stored = true;
  return result;
}

const CoordinatorCache::Cached* CoordinatorCache::find(CacheBit bit) const {
  const auto at = entries_.find(value(bit));
  return at == entries_.end() ? nullptr : &at->second->cached;
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
  for (const std::string& name : at->second->cached.names) by_name_.erase(name);
  order_.erase(at->second);
  entries_.erase(at);
  return true;
}

}  // namespace hvd::negotiation
