#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/negotiation/coordinator.h"
#include "runtime/negotiation/set_negotiation.h"
#include "runtime/negotiation/wait_board.h"

// Private to the Coordinator.
namespace hvd::negotiation {

using wire::CacheBit;

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

struct Coordinator::Impl {
  explicit Impl(const CoordinatorOptions& o);

  // coordinator.cc: what comes in.
  Status add_report(int from_rank, const wire::Report& report, TimePoint now);
  void add_ready_bit(CacheBit bit, std::string elements, TimePoint now);
  void evict(CacheBit bit);
  // The set, which may change now; null when there is none.
  SetNegotiation* touch(std::int32_t id);
  // Brings what a step looks at up to date with the sets that have changed.
  void reschedule();

  // coordinator_step.cc: what is decided.
  void apply_set_changes(TimePoint now, std::size_t& room, wire::Decision& decision);
  void announce_evictions(std::vector<wire::DecisionItem>& items);
  void look_for_stalls(TimePoint now);
  void record(StallVerdict verdict);
  void release_ready(TimePoint now, std::size_t& room, wire::Decision& decision);
  bool release_before_removal(const wire::SetChange& change, TimePoint now, std::size_t& room,
                              wire::Decision& decision);
  void enter_released(std::int32_t id, const std::vector<wire::DecisionItem>& items, std::size_t from);
  void warn_of_small_cache(std::int32_t id, SetNegotiation& set);
  std::optional<wire::Decision> finish(wire::Decision decision);
  std::optional<wire::Decision> step(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  CoordinatorOptions options;
  SetRegistry registry;
  StallInspector change_stall;  // of requests to change the process sets
  WaitBoard board;
  BitCounter bits;
  std::map<std::int32_t, SetNegotiation> sets;
  // There may be thousands of sets, and most have nothing to do: a step looks at those alone that do.
  std::vector<std::int32_t> touched;  // changed since reschedule(); with repetitions
  std::set<std::int32_t> ready;       // sets that have something to release
  Agenda releases;
  Agenda stalls;
  std::unordered_map<std::uint64_t, std::int32_t> set_of_bit;  // the live bits
  std::deque<CacheBit> evicted;                                // to announce in the next step
  std::uint64_t next_bit = 1;
  std::uint64_t next_sequence = 1;
  std::optional<wire::Stop> stop_wanted;
  bool stopped = false;
  std::vector<Note> notes;
};

}  // namespace hvd::negotiation
