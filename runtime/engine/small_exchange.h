#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/fork_mark.h"
#include "runtime/base/mutex.h"
#include "runtime/base/one_or_many.h"
#include "runtime/collectives/shm/exchanged_tensor.h"
#include "runtime/engine/exchange_waiter.h"
#include "runtime/engine/operation_table.h"
#include "runtime/engine/pending_operation.h"
#include "runtime/topology/process_set.h"
#include "runtime/wire/messages.h"

namespace hvd::engine {

// Null: the members of the set have no memory in common, or are not to add in an order of their own. The same for all.
using SlotsFactory = std::function<std::shared_ptr<collectives::ExchangeSlots>(const topology::ProcessSet&)>;

// Allreduces without negotiation: once one is cached, the members of a set that share memory exchange its elements
// there (ExchangeSlots), on the threads that submit it and wait for it. A small group is exchanged as one tensor. The
// engine only tells what is cached. All members give a tensor the same slot, because they learn of cached tensors in
// the same order, and use it for each operation of that name until somebody seals it; then they report its bit, as
// every other cached tensor's. When it is cached anew, it has its slot again (docs/design/wire.md, "Tensors that
// callers exchange"). What ends by a callback, nobody waits for: an ExchangeWaiter does. Callbacks are called without
// the lock, on whatever thread an operation ends.
//
// Thread-safe; outlives the session with the handles of its operations. Its lock comes before the table's.
class SmallExchange : public std::enable_shared_from_this<SmallExchange> {
 public:
  // Not used after close(), as the table is not.
  struct Engine {
    std::function<void()> notify;                        // something was submitted to the table
    std::function<void(const std::string& why)> fail{};  // the session ends
  };
  SmallExchange(int rank, OperationTable& table, SlotsFactory factory, Engine engine);

  // The largest tensor that is exchanged, by a thread that waits for it at once (is_awaited), and by any.
  static std::size_t most_bytes(int members);
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;  // of any number of members
  static constexpr std::size_t kMostAtOnce = std::size_t{16} << 10;

  // Adds an operation to the table, and submits it there unless it is exchanged here. Both in one, so that a removal of
  // its set (leave()) finds it added and submitted, or not at all. A join ends the exchange of its set until it is
  // over, a timeline that this rank writes that of all.
  Result<HandlePtr> add(Operation&& operation) HVD_EXCLUDES(mutex_);
  Result<std::vector<HandlePtr>> add_group(std::vector<Operation>&& operations) HVD_EXCLUDES(mutex_);
  // No more exchange in a set that this rank wants to be removed, and whose operations the table takes no more.
  void leave(std::int32_t process_set) HVD_EXCLUDES(mutex_);

  // For the engine: what is cached, and what is no more. Before anything of the decision is executed. The sets in force
  // before the decision are those of its responses: it may remove one, and give its id to another.
  void learn(const wire::Decision& decision, const topology::ProcessSetTable& before,
             const topology::ProcessSetTable& after) HVD_EXCLUDES(mutex_);
  // Uses that began before `then` go the ordinary way, where a stall is found out and told. So do those that another
  // member has sealed, which no thread here may have seen: who waits for them there waits for this rank.
  void give_up(TimePoint then) HVD_EXCLUDES(mutex_);
  void give_up_sealed() { give_up(TimePoint::min()); }
  // What is complete is completed; all else is left to the table, here and on whoever comes later. Nothing starts any
  // more. Not on a thread that an operation ends on.
  void close() HVD_EXCLUDES(mutex_);

  static ReduceOp reduction_of(const wire::Response& response);

 private:
  friend class SmallUse;
  struct Ended {  // with a callback
    PendingOperationPtr operation;
    std::function<void(const Handle&)> on_done;
  };
  // Holds the lock for a scope. Then calls the callbacks of what ended meanwhile: one after another, however deep in
  // the callbacks of others this is.
  class HVD_THREAD_ATTRIBUTE(scoped_lockable) Locked {
   public:
    explicit Locked(SmallExchange& exchange) HVD_THREAD_ATTRIBUTE(acquire_capability(exchange.mutex_));
    ~Locked() HVD_THREAD_ATTRIBUTE(release_capability());
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
    static bool is_calling() { return calling_ != nullptr; }  // this thread, a callback

   private:
    static thread_local std::deque<Ended>* calling_;  // what this thread is to call yet
    SmallExchange& exchange_;
  };
  using Responses = std::vector<std::shared_ptr<const wire::Response>>;
  using Pending = std::span<const PendingOperationPtr>;
  // A tensor, or those of a group, which lie one behind the other.
  struct Tensor {
    Responses responses;
    std::vector<std::size_t> places;  // of them among the operations of a group; found out by the first of its uses
    std::vector<std::byte> group{};   // the elements of a group
    collectives::ExchangedTensor data;
    bool is_sealed = true;
    bool renews = false;             // it was sealed by a join or a timeline: when that is over, the next use renews it
    std::shared_ptr<SmallUse> open;  // the last use that this rank has begun, while it is not complete
  };
  struct Set {
    topology::ProcessSetPtr set;
    std::shared_ptr<collectives::ExchangeSlots> slots;  // may be null
    std::size_t next_slot = 0;
    bool has_joined = false;
    bool leaves = false;
    bool is_shown = false;  // that callers exchange its tensors
    int open_uses = 0;      // tensors with one
    int open_groups = 0;    // groups among them
    std::unordered_map<std::string, Tensor> tensors;
    std::unordered_map<std::uint64_t, Tensor> groups;  // by their keys
  };
  // What is exchanged under a name or as a group, as long as its set is there; nulls: nothing.
  struct Found {
    Set* set = nullptr;
    Tensor* tensor = nullptr;
  };

  struct Cached {
    std::int32_t process_set = 0;
    Responses responses;    // of a group not all yet, as long as it is being announced
    bool was_used = false;  // since it was cached, or its name has a slot
  };

  // Null where nothing is ever exchanged.
  Set* set_of(const topology::ProcessSetPtr& of) HVD_REQUIRES(mutex_);
  // The bytes of what members may exchange; else 0.
  static std::size_t bytes_to_exchange(const Responses& responses);
  static Tensor* find(Set& set, const wire::Response& response);
  Found find(const Operation& operation) HVD_REQUIRES(mutex_);
  Found find_group(std::span<const Operation> operations) HVD_REQUIRES(mutex_);
  // Finds out `places`. Whether these are the operations that are cached.
  static bool is_same(Tensor& tensor, Pending pending);
  static bool can_exchange(const Set& set, Tensor& tensor, Pending pending);
  // False: it goes the ordinary way, and so does this use of its name on all members. `found`: under its name.
  bool start(Pending pending, const Found& found) HVD_REQUIRES(mutex_);
  // Also what the ExchangeWaiter is to wait for, if there is something.
  bool start(Pending pending, const Found& found, std::optional<ExchangeWaiter::Wait>& wait) HVD_REQUIRES(mutex_);
  static collectives::ExchangeSlots::State come(Tensor& tensor, Pending pending);
  static Status reduce(const Set& set, Tensor& tensor, Pending pending);
  // A name is free again when all have come, whether or not somebody has looked.
  void finish_last_use(const Found& found) HVD_REQUIRES(mutex_);
  // Of the groups that may have a name of the operation.
  void finish_last_uses_of_groups(const Operation& operation) HVD_REQUIRES(mutex_);
  void add(const wire::Response& response, const topology::ProcessSetTable& sets) HVD_REQUIRES(mutex_);
  void use(wire::CacheBit bit) HVD_REQUIRES(mutex_);
  void evict(wire::CacheBit bit) HVD_REQUIRES(mutex_);
  // A new generation of the tensor's slot.
  void open(Set& set, Tensor& tensor, const Responses& cached) HVD_REQUIRES(mutex_);
  void begin_join(const topology::ProcessSetPtr& of) HVD_REQUIRES(mutex_);
  // `renew`: the tensor gets a new bit, and so a new generation of its slot.
  void seal(Set& set, Tensor& tensor, bool renew = false) HVD_REQUIRES(mutex_);
  void seal_all(Set& set) HVD_REQUIRES(mutex_);
  void close_all() HVD_EXCLUDES(mutex_);
  // Ends the open use, if there is one, by what came of it.
  void end(Set& set, Tensor& tensor, collectives::ExchangeSlots::State state, bool renew) HVD_REQUIRES(mutex_);
  void finish(Set& set, Tensor& tensor, Pending pending) HVD_REQUIRES(mutex_);
  template <typename Action>
  static void for_each_tensor(Set& set, Action&& action) {
    for (auto& [name, tensor] : set.tensors) action(tensor);
    for (auto& [key, group] : set.groups) action(group);
  }

  const int rank_;
  OperationTable& table_;
  const SlotsFactory factory_;
  const Engine engine_;
  Mutex mutex_;
  bool is_closed_ HVD_GUARDED_BY(mutex_) = false;
  std::map<std::int32_t, Set> sets_ HVD_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Cached> by_bit_ HVD_GUARDED_BY(mutex_);  // what may be exchanged
  std::vector<Ended> ended_ HVD_GUARDED_BY(mutex_);
  ExchangeWaiter waiter_;
};

// One operation, or those of a group, that wait in shared memory for the other members. Belongs to their handles'
// states.
class SmallUse {
 public:
  // A thread that waits for longer lets the operation go the ordinary way.
  static constexpr Millis kPatience{800};  // then it is not among what a thread is reported to wait for

  // `has_come`: else the thread that waits brings the elements.
  SmallUse(std::shared_ptr<SmallExchange> exchange, std::shared_ptr<collectives::ExchangeSlots> slots,
           const collectives::ExchangeSlots::Use& use, bool has_come, SmallExchange::Pending pending,
           const SmallExchange::Found& of);

  // True when the handles are done, or the engine's or the table's to finish.
  bool look();
  // Waits for that, for `limit` at most. May return early, as Handle::wait_for() may.
  void wait(Millis limit);

 private:
  friend class SmallExchange;
  friend class ExchangeWaiter;

  const std::shared_ptr<SmallExchange> exchange_;
  const std::shared_ptr<collectives::ExchangeSlots> slots_;
  const collectives::ExchangeSlots::Use use_;
  std::atomic<bool> has_come_;
  const TimePoint since_;
  const ForkMark owner_;
  std::atomic<bool> is_open_{true};                        // read before a thread sleeps: in one order with the bells
  std::optional<OneOrMany<PendingOperationPtr>> pending_;  // while it is open; the exchange's, under its lock
  const SmallExchange::Found of_;
};

}  // namespace hvd::engine
