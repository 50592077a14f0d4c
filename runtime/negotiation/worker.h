#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/negotiation/worker_cache.h"
#include "runtime/topology/process_set.h"
#include "runtime/wire/messages.h"

namespace hvd::negotiation {

struct WorkerOptions {
  int rank = 0;
  // A cached tensor that waits for longer is sent to the slow path, where the coordinator's stall inspector sees who is
  // missing. nullopt: never (HOROVOD_STALL_CHECK_DISABLE).
  std::optional<Millis> cached_wait_limit = Millis(60000);
  // Sets of at most so many members reduce small tensors in the tree, where the order differs from a backend's: which
  // of the two takes a tensor depends on what happens (HOROVOD_DETERMINISTIC: 2, whose order shows in no bit).
  int max_members_in_tree = std::numeric_limits<int>::max();
};

// One collective that this rank executes now, or one error that it delivers.
struct OwnResponse {
  std::shared_ptr<const wire::Response> response;
  OperationId operation = OperationId::kNone;  // kNone: this rank has joined and takes part with zeros
  std::string elements{};                      // not empty: of all members, reduced; nothing is to be run
};

struct FailedOperation {
  OperationId operation = OperationId::kNone;
  Status status;
};

// What an operation ends with whose process set was removed before all members had submitted it.
Status removed_status(std::int32_t process_set, const std::string& name);

// What a decision means for this rank.
struct WorkerOutput {
  std::vector<OwnResponse> ready;  // in the order in which every member of the set runs them; all of one decision
  // The sets of this rank that the decision releases something of that is to be run. Rank 0 calls
  // Coordinator::on_batch_done once for each, after the last of `ready` of that set has run; at once when there is none
  // (an error in which it has no part).
  std::vector<std::int32_t> released;
  topology::ProcessSets sets;                    // in force after the decision; another one only if it changes sets
  std::vector<wire::SetDecision> set_decisions;  // the changes
  std::vector<FailedOperation> failed;           // dropped because of `stop` or because their set was removed
  std::vector<std::uint64_t> answered_contexts;  // wire::WaitAnswer
  // `ready` may hold operations of them: those run before the set ends.
  std::vector<topology::ProcessSetPtr> removed_sets;
  wire::FusionLimits limits;
  std::optional<wire::Stop> stop;
};

// The negotiation of one rank: turns its pending operations into reports, and decisions into what to run. Every rank
// has one, the root too. Owned by the engine, confined to its thread; no I/O, no clock. It knows nothing of the tree.
// States of a pending submission: held (this rank has joined its set) -> queued -> sent in full, each of its operations
// for itself | sent as a bit -> released or failed. Eviction of its bit takes "sent as a bit" back to "queued".
class Worker {
 public:
  Worker(const WorkerOptions& options, topology::ProcessSets sets);
  Worker(Worker&&) = default;
  Worker& operator=(Worker&&) = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Operations and joins in the order of submission, the members of a group one behind the other; at most one pending
  // per set and name. After a stop they are all returned as failed.
  std::vector<FailedOperation> submit(std::vector<OwnRequest> requests);
  // kInvalidArgument when there are more lists or ranks in it than a message may hold.
  static Status check_set_change(const wire::SetChange& change);
  Status request_set_change(wire::SetChange change);
  void request_shutdown();

  // What this rank has to report since the last call; may be empty. Bounded by wire::kMessageByteBudget: call it until
  // has_report() is false.
  bool has_report(TimePoint now) const;
  wire::Report take_report(TimePoint now);
  // When has_report() will become true by itself; nullopt: never.
  std::optional<TimePoint> next_deadline() const;

  // Puts back what the wire leaves out of a decision: the ranks of the sets given to init(), which this rank gave, too.
  // Before anybody on this rank reads the decision.
  Status restore(wire::Decision& decision) const;
  // Applies one decision. An error means that the coordinator and this rank disagree (our bug, or a hostile peer): the
  // session has to end with it.
  Result<WorkerOutput> on_decision(const wire::Decision& decision);
  // Drops everything that is pending because of `why`, as a decision with a stop would.
  std::vector<FailedOperation> fail_all(const Status& why);

  // In force after the last decision.
  const topology::ProcessSets& sets() const { return sets_; }
  // What a bit stands for on this rank; null: it is unknown, or of a set that this rank is not in.
  const WorkerCache::Entry* cached(wire::CacheBit bit);
  bool stopped() const { return stopped_.has_value(); }
  // The number of the last decision that was applied.
  std::uint64_t last_sequence() const { return last_sequence_; }

 private:
  struct SentFull {
    OwnRequest own;
    std::uint32_t place = 0;  // among the members of its group
  };
  struct SetState {
    WorkerCache cache;
    std::deque<Submission> queue;  // oldest first
    std::size_t reported = 0;      // of the members of the first in it, which goes in full: those that are sent
    std::unordered_map<std::string, SentFull> sent_full;  // by name
    std::size_t sent_bits = 0;                            // entries of the cache that are outstanding
    std::deque<Submission> held;                          // submitted after the join
    // A join is sent when nothing is outstanding as a bit: an eviction after it would make it unclear whether this rank
    // takes part with its tensor or with zeros. Asking for the eviction of those bits settles each of them. The same
    // holds for the request to remove the set: what it has must be with the coordinator before.
    OperationId join = OperationId::kNone;  // pending join
    bool join_sent = false;
    bool leaving = false;  // the removal of the set was asked for: nothing new comes
    bool sent_bits_flushed = false;
  };

  static bool must_flush(const SetState& set);
  static bool can_send_join(const SetState& set);
  bool can_send_change() const;
  static void accept(SetState& set, Submission&& own);
  // False when the report is full.
  bool report_operations(SetState& set, TimePoint now, std::size_t& room, wire::Report& report);
  static void flush_sent_bits(SetState& set, wire::Report& report);
  void report_bit(SetState& set, WorkerCache::Entry& cached, TimePoint now, std::size_t& room, wire::Report& report);
  static bool report_in_full(SetState& set, std::size_t& room, wire::Report& report);
  void report_long_waits(TimePoint now, wire::Report& report);

  Status apply(const wire::Response& response, WorkerOutput& out);
  Status apply_join(const wire::Response& response, SetState& set, WorkerOutput& out);
  Status apply(const wire::CacheHit& hit, WorkerOutput& out);
  Status apply(const wire::Evict& evict, WorkerOutput& out);
  Status apply(const wire::SetDecision& decision, WorkerOutput& out);
  Status remove_set(std::int32_t id, topology::ProcessSetTable& table, WorkerOutput& out);
  Status apply(const wire::WaitAnswer& answer, WorkerOutput& out);
  void start_waiting(WorkerCache::Entry& sent, TimePoint now);
  void stop_waiting(WorkerCache::Entry& sent);
  // What was sent as the bit, which is not outstanding any more; nullopt: nothing was.
  std::optional<Submission> take_sent(SetState& set, WorkerCache::Entry& sent);
  // `why` gets the name of what fails.
  using Reason = std::function<Status(const std::string& name)>;
  void drop_set(SetState& set, const Reason& why, std::vector<FailedOperation>& failed);

  WorkerOptions options_;
  topology::ProcessSets sets_;
  std::map<std::int32_t, SetState> states_;                     // the sets that this rank is a member of
  std::unordered_map<std::uint64_t, std::int32_t> set_of_bit_;  // every live bit, also of other sets
  std::list<BitWait> waiting_;                                  // oldest first
  std::list<BitWait> unused_waits_;                             // so that a step allocates none
  std::deque<wire::SetChange> set_changes_;
  std::deque<std::vector<std::vector<int>>> static_lists_;  // of the kStatic changes that are not decided yet
  bool shutdown_wanted_ = false;
  bool shutdown_sent_ = false;
  std::uint64_t last_sequence_ = 0;
  std::optional<Status> stopped_;
};

}  // namespace hvd::negotiation
