#include "runtime/response_cache/coordinator_cache.h"

#include "runtime/base/check.h"

namespace hvd::response_cache {

using wire::CacheBit;
using wire::value;

CoordinatorCache::Inserted CoordinatorCache::insert(const wire::Response& response) {
  HVD_CHECK(response.bit != CacheBit::kNone && !entries_.contains(value(response.bit)), "a cached response needs a new bit");
  Inserted result;
  if (const auto same = by_name_.find(response.name); same != by_name_.end()) {
    const CacheBit old = same->second;
    if (!erase(old)) return result;
    result.evicted.push_back(old);
  }
  if (entries_.size() >= capacity_) {
    auto victim = order_.begin();
    while (victim != order_.end() && victim->pinned) ++victim;
    if (victim == order_.end()) return result;
    const CacheBit old = victim->response.bit;
    erase(old);
    result.evicted.push_back(old);
  }
  order_.push_back({response, false});
  entries_.emplace(value(response.bit), std::prev(order_.end()));
  by_name_[response.name] = response.bit;
  result.stored = true;
  return result;
}

const wire::Response* CoordinatorCache::find(CacheBit bit) const {
  const auto at = entries_.find(value(bit));
  return at == entries_.end() ? nullptr : &at->second->response;
}

void CoordinatorCache::touch(CacheBit bit) {
  if (const auto at = entries_.find(value(bit)); at != entries_.end()) {
    order_.splice(order_.end(), order_, at->second);
  }
}

void CoordinatorCache::set_pinned(CacheBit bit, bool pinned) {
  if (const auto at = entries_.find(value(bit)); at != entries_.end()) at->second->pinned = pinned;
}

bool CoordinatorCache::erase(CacheBit bit) {
  const auto at = entries_.find(value(bit));
  if (at == entries_.end() || at->second->pinned) return false;
  by_name_.erase(at->second->response.name);
  order_.erase(at->second);
  entries_.erase(at);
  return true;
}

std::vector<CacheBit> CoordinatorCache::bits() const {
  std::vector<CacheBit> found;
  for (const Entry& entry : order_) found.push_back(entry.response.bit);
  return found;
}

}  // namespace hvd::response_cache
