#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"

namespace hvd::rendezvous {

struct StoreLimits {
  std::size_t value_bytes = std::size_t{256} * 1024;
  std::size_t total_bytes = std::size_t{64} * 1024 * 1024;  // values and names, and kEntryOverhead for each key
  std::size_t keys = 65536;
  std::size_t waiters = 65536;
};

// Somebody who waits for a key; the caller picks the number. One waiter waits for one key at a
// time.
using WaiterId = std::uint64_t;

// The key-value store: scopes of write-once keys. Pure: no clock, no I/O, no thread of its own;
// owned by the server's handler and used on its thread only.
//
// It knows neither who may do what nor what a scope means; names come in checked.
class Store {
 public:
  static constexpr std::size_t kEntryOverhead = 128;

  explicit Store(StoreLimits limits = {}) : limits_(limits) {}

  // Stores the value and returns who waited for it. The same value again changes nothing and
  // succeeds; a different one is kPrecondition naming the key. A limit that would be passed is
  // kInvalidArgument (value) or kPrecondition (store).
  Result<std::vector<WaiterId>> put(std::string_view scope, std::string_view key, ByteSpan value);

  // Null when the key does not exist. Valid until the next call that changes the store.
  const Bytes* find(std::string_view scope, std::string_view key) const;

  // Registers for a key that does not exist. Requires: find() is null and the waiter waits for
  // nothing.
  Status watch(std::string_view scope, std::string_view key, WaiterId waiter);
  // Forgets the waiter; nothing happens when it waits for nothing.
  void unwatch(WaiterId waiter);

  // Removes `prefix` and every scope that begins with "<prefix>."; returns who waited for keys in them.
  std::vector<WaiterId> drop_scopes(std::string_view prefix);

  std::size_t key_count() const { return key_count_; }
  std::size_t byte_count() const { return byte_count_; }
  std::size_t waiter_count() const { return watched_.size(); }

 private:
  using Scope = std::map<std::string, Bytes, std::less<>>;
  using FullKey = std::pair<std::string, std::string>;

  Status check_room(std::string_view scope, std::string_view key, std::size_t value_bytes) const;
  std::vector<WaiterId> release(const FullKey& full_key);

  StoreLimits limits_;
  std::map<std::string, Scope, std::less<>> scopes_;
  std::size_t key_count_ = 0;
  std::size_t byte_count_ = 0;
  std::map<FullKey, std::set<WaiterId>> waiters_;
  std::unordered_map<WaiterId, FullKey> watched_;  // the inverse of waiters_
};

}  // namespace hvd::rendezvous
