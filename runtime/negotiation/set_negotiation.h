#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/negotiation/coordinator.h"
#include "runtime/negotiation/coordinator_cache.h"
#include "runtime/negotiation/stall_inspector.h"
#include "runtime/negotiation/validator.h"
#include "runtime/topology/process_set.h"
#include "runtime/topology/rank_set.h"
#include "runtime/wire/messages.h"

namespace hvd::negotiation {

// Which members of one process set have joined. Loop-confined. Once all have, the last one is the join's result and a
// new round starts.
class JoinTracker {
 public:
  explicit JoinTracker(int set_size) : joined_(set_size) {}

  // False when that member has joined already (a protocol error of the rank).
  bool add(int set_rank) {
    if (!joined_.insert(set_rank)) return false;
    last_ = set_rank;
    return true;
  }
  bool any() const { return joined_.count() > 0; }
  bool all() const { return joined_.full(); }
  int last() const { return last_; }  // set rank; -1: none
  const topology::RankSet& joined() const { return joined_; }
  void reset() {
    joined_.clear();
    last_ = -1;
  }

 private:
  topology::RankSet joined_;
  int last_ = -1;
};

// Holds back the members of groups at the coordinator until the last one is ready on all ranks, for one process set.
// `Item` is what is held of a member. Loop-confined.
// Invariant: for each key, members held < group size.
template <typename Item>
class GroupTable {
 public:
  // The members to release now, in the order in which they became ready: all of them when this was the last, else none.
  std::vector<Item> add(std::uint64_t key, std::uint32_t size, Item item) {
    auto& held = groups_[key];
    held.push_back(std::move(item));
    if (held.size() < size) return {};
    std::vector<Item> all = std::move(held);
    groups_.erase(key);
    return all;
  }

 private:
  std::unordered_map<std::uint64_t, std::vector<Item>> groups_;
};

// The coordinator's state of one process set: tensors that some members have reported, tensors that all have and that
// wait to be released, groups, joins, cached bits. Part of the Coordinator and private to it.
// A tensor's way: pending -> ready -> [held by its group] -> released; of a bit: pending in BitCounter -> ready ->
// released.
class SetNegotiation {
 public:
  SetNegotiation(topology::ProcessSetPtr set, const CoordinatorOptions& options);

  Status add_request(const wire::MergedRequest& merged, TimePoint now);
  // Every member that has not joined has reported the bit. False when it cannot run because ranks have joined
  // (allgather, alltoall); evict it, then the members resubmit in full and the validator words the error.
  bool add_ready(wire::CacheHit hit, TimePoint now);
  Status add_join(int rank, TimePoint now);
  // The bit's parameters changed, or it waits for too long. False when it is not live or already ready.
  bool evict(wire::CacheBit bit);
  void on_batch_done();
  void set_delay(std::chrono::microseconds delay) { delay_ = delay; }

  // Appends what may leave at `now` to `items`, as many as `room` bytes and kMaxItems allow. `flush`: without the limit
  // of releases in flight and without delay. Bits are numbered from `next_bit`, which it advances.
  void release(TimePoint now, bool flush, std::uint64_t& next_bit, std::size_t& room,
               std::vector<wire::DecisionItem>& items);
  bool has_ready() const { return !ready_.empty(); }
  // True once: when a name has come back that the cache had no room for.
  bool take_small_cache();
  // When release() will have something to do without further input.
  std::optional<TimePoint> release_deadline() const;

  std::optional<TimePoint> stall_deadline() const;
  StallVerdict look_for_stalls(TimePoint now);

 private:
  struct Pending {
    std::string name;
    TimePoint since;
    topology::RankSet reported;            // set ranks
    std::vector<RequestClass> classes;     // not empty; one as long as the ranks agree
    std::vector<std::int64_t> first_dims;  // allgather: by set rank
    std::uint64_t devices_key = 0;
  };
  // What becomes ready at once, and has one bit: a tensor, or all of a group.
  struct InFull {
    std::vector<wire::Response> responses;
    std::size_t released = 0;                    // of them: a message may not hold all
    wire::CacheBit bit = wire::CacheBit::kNone;  // from the first on
  };
  using Ready = std::variant<InFull, wire::CacheHit>;

  // Enters the ranks of a merged request. Not ok when one is not a member or has reported the tensor before.
  Status enter_ranks(Pending& pending, const wire::MergedRequest& merged);
  bool is_ready(const Pending& pending) const;
  void finish(std::list<Pending>::iterator pending, TimePoint now);
  wire::Response make_response(Pending& pending) const;
  // `member` is empty for one that left early.
  void push_through_group(std::uint64_t key, std::uint32_t size, std::optional<wire::Response> member, TimePoint now);
  void push_ready(Ready item, TimePoint now);
  bool may_release(TimePoint now) const;
  std::size_t size_of(const Ready& item) const;
  // Releases the next response of the first that is ready, or its bit. Whether there is something to run.
  bool release_one(std::uint64_t& next_bit, std::size_t& room, std::vector<wire::DecisionItem>& items);
  void give_bit(InFull& ready, std::uint64_t& next_bit, std::size_t& room, std::vector<wire::DecisionItem>& items);

  const topology::ProcessSetPtr set_;
  int max_in_flight_;  // 0: no limit
  std::chrono::microseconds delay_;
  std::list<Pending> pending_;  // in order of the first report
  std::unordered_map<std::string, std::list<Pending>::iterator> by_name_;
  GroupTable<std::optional<wire::Response>> groups_;
  JoinTracker joins_;
  bool join_ready_ = false;  // all have joined; the join's response is among ready_
  CoordinatorCache cache_;
  bool misses_cache_ = false;
  bool small_cache_reported_ = false;
  StallInspector stall_;
  std::deque<Ready> ready_;
  TimePoint ready_since_{};  // when ready_ stopped being empty
  int in_flight_ = 0;
};

}  // namespace hvd::negotiation
