#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/wire/messages.h"

namespace hvd::response_cache {

// The coordinator's cache of one process set: which responses have a bit, least recently used first. It decides what is
// evicted; every rank follows (WorkerCache). Pure, externally synchronised.
// Invariant: size() <= capacity. Entries that are pinned (ready, not emitted yet) are never evicted.
class CoordinatorCache {
 public:
  explicit CoordinatorCache(std::size_t capacity) : capacity_(capacity) {}

  struct Inserted {
    bool stored = false;               // false: capacity 0, or everything is pinned
    std::vector<wire::CacheBit> evicted;  // to announce before the response
  };
  // Stores `response` under response.bit as the most recently used. An entry of the same name is evicted.
  Inserted insert(const wire::Response& response);

  const wire::Response* find(wire::CacheBit bit) const;
  void touch(wire::CacheBit bit);  // now the most recently used
  void set_pinned(wire::CacheBit bit, bool pinned);
  // True when the bit was there and is gone now; a pinned bit stays.
  bool erase(wire::CacheBit bit);

  std::size_t size() const { return entries_.size(); }
  std::size_t capacity() const { return capacity_; }
  std::vector<wire::CacheBit> bits() const;  // least recently used first

 private:
  struct Entry {
    wire::Response response;
    bool pinned = false;
  };
  using Order = std::list<Entry>;

  std::size_t capacity_;
  Order order_;  // least recently used first
  std::unordered_map<std::uint64_t, Order::iterator> entries_;
  std::unordered_map<std::string, wire::CacheBit> by_name_;
};

}  // namespace hvd::response_cache
