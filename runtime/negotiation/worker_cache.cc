#include "runtime/negotiation/worker_cache.h"

#include "runtime/base/check.h"

namespace hvd::negotiation {

using wire::CacheBit;
using wire::value;

WorkerCache::Lookup WorkerCache::look_up(const wire::Request& request) const {
  const auto named = by_name_.find(request.name);
  if (named == by_name_.end()) return {};
  const Entry& entry = by_bit_.at(value(named->second));
  return {entry.own_request == request ? Outcome::kHit : Outcome::kChanged, named->second, entry.response.get()};
}

void WorkerCache::insert(std::shared_ptr<const wire::Response> response, wire::Request own_request) {
  const CacheBit bit = response->bit;
  HVD_CHECK(bit != CacheBit::kNone, "a cached response needs a bit");
  if (const auto same = by_name_.find(response->name); same != by_name_.end()) by_bit_.erase(value(same->second));
  by_name_[response->name] = bit;
  by_bit_[value(bit)] = {std::move(response), std::move(own_request)};
}

std::shared_ptr<const wire::Response> WorkerCache::find(CacheBit bit) const {
  const auto at = by_bit_.find(value(bit));
  return at == by_bit_.end() ? nullptr : at->second.response;
}

bool WorkerCache::erase(CacheBit bit) {
  const auto at = by_bit_.find(value(bit));
  if (at == by_bit_.end()) return false;
  by_name_.erase(at->second.response->name);
  by_bit_.erase(at);
  return true;
}

}  // namespace hvd::negotiation
