#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/deadline.h"

namespace hvd::negotiation {

// When each process set has something to do next; those that wait for nothing are not in it. Private to the
// Coordinator, which asks only those whose time has come.
class Agenda {
 public:
  void put(std::int32_t id, std::optional<TimePoint> when) {
    const auto at = when_.find(id);
    if (at != when_.end()) {
      if (when && at->second == *when) return;
      order_.erase({at->second, id});
      when_.erase(at);
    }
    if (!when) return;
    when_.emplace(id, *when);
    order_.emplace(*when, id);
  }
  std::optional<TimePoint> next() const { return order_.empty() ? std::nullopt : std::optional(order_.begin()->first); }
  // Those whose time has come, by time and id.
  std::vector<std::int32_t> due(TimePoint now) const {
    std::vector<std::int32_t> ids;
    for (auto at = order_.begin(); at != order_.end() && at->first <= now; ++at) ids.push_back(at->second);
    return ids;
  }

 private:
  std::unordered_map<std::int32_t, TimePoint> when_;
  std::set<std::pair<TimePoint, std::int32_t>> order_;
};

}  // namespace hvd::negotiation
