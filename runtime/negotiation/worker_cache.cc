#include "runtime/negotiation/worker_cache.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace hvd::negotiation {

using wire::CacheBit;
using wire::value;

WorkerCache::Entry* WorkerCache::find(std::span<const OwnRequest> requests) {
  const wire::Request& first = requests.front().request;
  Entry* entry = nullptr;
  if (first.group_size > 0) {
    const auto at = by_group_key_.find(first.group_key);
    if (at != by_group_key_.end()) entry = at->second;
  } else {
    const auto at = by_name_.find(first.name);
    if (at != by_name_.end()) entry = at->second;
  }
  if (entry == nullptr || !entry->is_complete()) return nullptr;
  const auto is_same = [](const OwnRequest& own, const wire::Request& cached) { return own.request == cached; };
  return std::ranges::equal(requests, entry->requests, is_same) ? entry : nullptr;
}

WorkerCache::Entry* WorkerCache::find(CacheBit bit) {
  const auto at = by_bit_.find(value(bit));
  return at == by_bit_.end() ? nullptr : &at->second;
}

void WorkerCache::add_bits_of(std::span<const OwnRequest> requests, std::vector<CacheBit>& bits) const {
  for (const OwnRequest& own : requests) {
    const auto at = by_name_.find(own.request.name);
    if (at == by_name_.end()) continue;
    if (bits.empty() || bits.back() != at->second->bit) bits.push_back(at->second->bit);
  }
}

bool WorkerCache::insert(std::shared_ptr<const wire::Response> response, wire::Request own_request,
                         std::uint32_t place) {
  HVD_CHECK(response->bit != CacheBit::kNone, "a cached response needs a bit");
  if (response->group_key != own_request.group_key || response->group_size != own_request.group_size) return false;
  const auto same = by_name_.find(response->name);
  if (same != by_name_.end() && same->second->bit != response->bit) return false;  // that is evicted first
  Entry& entry = by_bit_[value(response->bit)];
  if (entry.requests.empty()) {
    entry.bit = response->bit;
    entry.requests.resize(std::max<std::size_t>(response->group_size, 1));
    if (response->group_size > 0) by_group_key_[response->group_key] = &entry;
  } else if (entry.is_complete() || entry.responses.front()->group_key != response->group_key ||
             entry.responses.front()->group_size != response->group_size) {
    return false;
  }
  by_name_[response->name] = &entry;
  entry.small.add(*response);
  entry.places.push_back(place);
  entry.requests[place] = std::move(own_request);
  entry.responses.push_back(std::move(response));
  return true;
}

bool WorkerCache::erase(CacheBit bit) {
  const auto at = by_bit_.find(value(bit));
  if (at == by_bit_.end()) return false;
  const Entry& entry = at->second;
  for (const auto& response : entry.responses) {
    by_name_.erase(response->name);
    if (response->group_size > 0) by_group_key_.erase(response->group_key);
  }
  by_bit_.erase(at);
  return true;
}

}  // namespace hvd::negotiation
