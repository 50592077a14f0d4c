#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace hvd::negotiation {

// The key of a group: the same on every rank that groups the same names in the same order; never 0.
std::uint64_t group_key(std::span<const std::string> names);

// Holds back the members of groups at the coordinator until the last one is ready on all ranks, for one process set.
// `Item` is whatever the coordinator emits for a member. Loop-confined.
// Invariant: for each key, members held < group size.
template <typename Item>
class GroupTable {
 public:
  // The members to emit now, in the order in which they became ready: all of them when this was the last, else none.
  std::vector<Item> add(std::uint64_t key, std::uint32_t size, Item item) {
    auto& held = groups_[key];
    held.push_back(std::move(item));
    if (held.size() < size) return {};
    std::vector<Item> all = std::move(held);
    groups_.erase(key);
    return all;
  }
  std::size_t groups() const { return groups_.size(); }

 private:
  std::unordered_map<std::uint64_t, std::vector<Item>> groups_;
};

}  // namespace hvd::negotiation
