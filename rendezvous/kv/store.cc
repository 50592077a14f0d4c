#include "rendezvous/kv/store.h"

#include <algorithm>
#include <utility>

namespace hvd::rendezvous {
namespace {

std::string path_of(std::string_view scope, std::string_view key) { return std::string(scope).append("/").append(key); }

std::size_t cost_of(std::string_view scope, std::string_view key, std::size_t value_bytes) {
  return scope.size() + key.size() + value_bytes + Store::kEntryOverhead;
}

}  // namespace

Result<std::vector<WaiterId>> Store::put(std::string_view scope, std::string_view key, ByteSpan value) {
  if (const Bytes* present = find(scope, key)) {
    if (std::ranges::equal(*present, value)) return std::vector<WaiterId>{};
    return Status::precondition("key " + path_of(scope, key) + " has a different value already (" +
                                std::to_string(present->size()) + " bytes there, " + std::to_string(value.size()) +
                                " bytes sent); keys are written once");
  }
  HVD_RETURN_IF_ERROR(check_room(scope, key, value.size()));
  auto in = scopes_.try_emplace(std::string(scope)).first;
  in->second.emplace(key, Bytes(value.begin(), value.end()));
  ++key_count_;
  byte_count_ += cost_of(scope, key, value.size());
  return release({std::string(scope), std::string(key)});
}

Status Store::check_room(std::string_view scope, std::string_view key, std::size_t value_bytes) const {
  if (value_bytes > limits_.value_bytes) {
    return Status::invalid_argument("value of key " + path_of(scope, key) + " has " + std::to_string(value_bytes) +
                                    " bytes; at most " + std::to_string(limits_.value_bytes) + " are allowed");
  }
  if (key_count_ >= limits_.keys) {
    return Status::precondition("key " + path_of(scope, key) + " does not fit: the store holds " +
                                std::to_string(key_count_) + " keys, its limit");
  }
  if (cost_of(scope, key, value_bytes) > limits_.total_bytes - byte_count_) {
    return Status::precondition("key " + path_of(scope, key) + " does not fit: the store holds " +
                                std::to_string(byte_count_) + " of at most " + std::to_string(limits_.total_bytes) +
                                " bytes");
  }
  return Status::ok();
}

const Bytes* Store::find(std::string_view scope, std::string_view key) const {
  auto in = scopes_.find(scope);
  if (in == scopes_.end()) return nullptr;
  auto entry = in->second.find(key);
  return entry == in->second.end() ? nullptr : &entry->second;
}

Status Store::watch(std::string_view scope, std::string_view key, WaiterId waiter) {
  HVD_CHECK(!watched_.contains(waiter), "a waiter waits for one key at a time");
  HVD_CHECK(find(scope, key) == nullptr, "nobody waits for a key that exists");
  if (watched_.size() >= limits_.waiters) {
    return Status::precondition(std::to_string(watched_.size()) + " clients wait for keys already, the limit");
  }
  FullKey full_key{std::string(scope), std::string(key)};
  waiters_[full_key].insert(waiter);
  watched_.emplace(waiter, std::move(full_key));
  return Status::ok();
}

void Store::unwatch(WaiterId waiter) {
  auto watched = watched_.find(waiter);
  if (watched == watched_.end()) return;
  auto at = waiters_.find(watched->second);
  at->second.erase(waiter);
  if (at->second.empty()) waiters_.erase(at);
  watched_.erase(watched);
}

std::vector<WaiterId> Store::release(const FullKey& full_key) {
  auto at = waiters_.find(full_key);
  if (at == waiters_.end()) return {};
  std::vector<WaiterId> released(at->second.begin(), at->second.end());
  for (WaiterId waiter : released) watched_.erase(waiter);
  waiters_.erase(at);
  return released;
}

std::vector<WaiterId> Store::drop_scopes(std::string_view prefix) {
  auto covered = [prefix](std::string_view scope) {
    return scope.starts_with(prefix) && (scope.size() == prefix.size() || scope[prefix.size()] == '.');
  };
  // All names that begin with the prefix are neighbours in both maps.
  for (auto in = scopes_.lower_bound(prefix); in != scopes_.end() && in->first.starts_with(prefix);) {
    if (!covered(in->first)) {
      ++in;
      continue;
    }
    for (const auto& [key, value] : in->second) byte_count_ -= cost_of(in->first, key, value.size());
    key_count_ -= in->second.size();
    in = scopes_.erase(in);
  }
  std::vector<WaiterId> released;
  for (auto at = waiters_.lower_bound({std::string(prefix), ""});
       at != waiters_.end() && at->first.first.starts_with(prefix);) {
    if (!covered(at->first.first)) {
      ++at;
      continue;
    }
    released.insert(released.end(), at->second.begin(), at->second.end());
    for (WaiterId waiter : at->second) watched_.erase(waiter);
    at = waiters_.erase(at);
  }
  return released;
}

}  // namespace hvd::rendezvous
