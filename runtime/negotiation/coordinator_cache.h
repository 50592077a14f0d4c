#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/wire/messages.h"

namespace hvd::negotiation {

// When names that are not cached were used last, for so many names; the longest unused is forgotten first.
class UseHistory {
 public:
  static constexpr std::size_t kNames = 1u << 16;
  void put(const std::string& name, std::uint64_t when);
  std::optional<std::uint64_t> take(const std::string& name);

 private:
  struct Use {
    std::uint64_t when = 0;
    std::size_t name = 0;  // its hash: a collision costs a wrong eviction, no error
  };
  std::deque<Use> uses_;  // in order; those that last_ contradicts mean nothing any more
  std::unordered_map<std::size_t, std::uint64_t> last_;
};

// The coordinator's cache of one process set: what has a bit, least recently used first: a tensor, or all of a group.
// It decides what is evicted; every rank follows (WorkerCache). Pure, externally synchronised.
// A name that comes back evicts the least recently used entry only if that has not been used since the name was: a step
// with more names than there is room for then keeps most of them, where plain LRU would evict each right before its
// use. Invariant: size() <= capacity. Entries that are pinned (ready, not emitted yet) are never evicted.
class CoordinatorCache {
 public:
  explicit CoordinatorCache(std::size_t capacity) : capacity_(capacity) {}

  // What a bit stands for: names of one kind of operation.
  struct Cached {
    wire::CacheBit bit = wire::CacheBit::kNone;
    OpType op = OpType::kAllreduce;
    std::vector<std::string> names;  // not empty
  };
  struct Inserted {
    bool stored = false;                  // false: capacity 0, or everything is pinned or in more use than the newcomer
    bool was_missed = false;              // its name had no room before, or lost it, and there is no free room now
    std::vector<wire::CacheBit> evicted;  // to announce before the response
  };
  // Stores it as the most recently used. Entries with one of its names are evicted; where those are more than
  // `most_evicted` or pinned, it is not stored.
  Inserted insert(Cached cached, std::size_t most_evicted);

  const Cached* find(wire::CacheBit bit) const;
  void pin(wire::CacheBit bit);
  void touch(wire::CacheBit bit);  // now the most recently used, and not pinned
  // True when the bit was removed; a pinned bit stays.
  bool erase(wire::CacheBit bit);

  std::size_t size() const { return entries_.size(); }
  std::size_t capacity() const { return capacity_; }

 private:
  struct Entry {
    Cached cached;
    std::uint64_t used = 0;
    bool pinned = false;
  };
  using Order = std::list<Entry>;
  // Evicts what has one of the names. False when there is one left.
  bool evict_names(const std::vector<std::string>& names, std::size_t most_evicted, Inserted& result);
  // Frees room for `name`, the newcomer's first; false when there is nothing to evict.
  bool make_room(const std::string& name, Inserted& result);

  std::size_t capacity_;
  Order order_;   // least recently used first
  Order pinned_;  // apart, so that nobody who looks for a victim passes them: a step may pin all there are
  std::unordered_map<std::uint64_t, Order::iterator> entries_;
  std::unordered_map<std::string, wire::CacheBit> by_name_;
  std::uint64_t uses_ = 0;  // counts them: the clock
  UseHistory history_;      // of names that were full's victims
};

}  // namespace hvd::negotiation
