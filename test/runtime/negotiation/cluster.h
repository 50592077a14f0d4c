#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/negotiation/coordinator.h"
#include "runtime/negotiation/decision_router.h"
#include "runtime/negotiation/relay.h"
#include "runtime/negotiation/worker.h"

namespace hvd::negotiation::test {

// What the engine's table of operations does for a rank, as far as negotiation depends on it: a name is pending once in
// its set, as is a join, and nothing is taken for a set that is unknown, closed, or of others.
class PendingOperations {
 public:
  PendingOperations(int rank, topology::ProcessSets sets) : rank_(rank), sets_(std::move(sets)) {}

  // All or none; more than one are a group.
  Status add(std::vector<OwnRequest> group);
  Status add_join(std::int32_t process_set, OperationId operation);
  std::vector<OwnRequest> fetch() { return std::exchange(fresh_, {}); }
  void complete(OperationId operation);
  Status close_set(std::int32_t id);
  void publish(topology::ProcessSets sets) { sets_ = std::move(sets); }
  std::size_t pending() const { return pending_.size(); }

 private:
  struct Name {
    std::uint64_t context_id = 0;
    bool is_join = false;
    std::string name;
    // NOLINTNEXTLINE(modernize-use-nullptr): it means the 0 that the compiler itself compares with
    auto operator<=>(const Name&) const = default;
  };
  Status enter(OwnRequest own);

  int rank_;
  topology::ProcessSets sets_;
  std::set<std::uint64_t> closed_;  // contexts
  std::set<Name> names_;
  std::map<OperationId, Name> pending_;
  std::vector<OwnRequest> fresh_;
};

// All ranks of a job in one thread: queues, workers, relays and the coordinator, joined by in-memory links that carry
// encoded messages in order. Nothing happens by itself: the test chooses which node works and which link delivers.
class Cluster {
 public:
  struct Executed {
    std::int32_t process_set = 0;
    std::uint64_t context = 0;  // of the process set: ids are used again
    std::string name;
    OpType op = OpType::kAllreduce;
    Shape shape;
    std::string error;
    OperationId operation = OperationId::kNone;
    int root_rank = -1;
    std::vector<std::int64_t> first_dims;
    std::string elements{};  // reduced by the tree; empty: it was run
  };
  // Operations that one decision released of a set.
  struct Release {
    std::uint64_t context = 0;
    std::size_t count = 0;
  };
  struct Node {
    Node(const topology::TreePlan& plan, int rank, const WorkerOptions& options, const topology::ProcessSets& sets);
    PendingOperations queue;
    Worker worker;
    std::unique_ptr<Relay> relay;  // none at the root
    DecisionRouter router;
    std::deque<Bytes> up;                                  // from this node to its parent
    std::deque<Bytes> down;                                // from the parent to this node
    std::map<std::int32_t, std::deque<Executed>> lanes;    // ready, not executed
    std::map<std::int32_t, std::deque<Release>> releases;  // rank 0: those not done yet
    std::vector<Executed> log;                             // executed, in order
    std::vector<FailedOperation> failed;
    std::vector<wire::SetDecision> set_decisions;
    std::optional<wire::Stop> stop;
  };

  explicit Cluster(const CoordinatorOptions& options, WorkerOptions worker_options = {});

  int size() const { return static_cast<int>(nodes_.size()); }
  Node& node(int rank) { return *nodes_[static_cast<std::size_t>(rank)]; }
  Coordinator& coordinator() { return coordinator_; }
  const topology::TreePlan& plan() const { return plan_; }
  TimePoint now() const { return now_; }
  void advance(std::chrono::nanoseconds span) { now_ += span; }

  // What the engine does when a rank asks for a change: what was added before goes first, and a set that is to be
  // removed takes no more operations.
  Status request_set_change(int rank, wire::SetChange change);

  // One piece of work; false when there was none. They fail the test when a message is refused.
  bool work(int rank);                               // fetch, report, step
  bool deliver_up(int rank);                         // one message of this node to its parent
  bool deliver_down(int rank);                       // one message of the parent to this node
  bool execute(int rank, std::int32_t process_set);  // one operation of the lane
  // Everything, in a fixed order, until nothing is left to do.
  void settle();
  std::vector<Executed> take_log(int rank);
  // Values for an operation's input, which live as long as this.
  const void* keep(std::vector<std::int64_t> values) { return inputs_.emplace_back(std::move(values)).data(); }

  std::size_t bytes_up() const { return bytes_up_; }
  std::size_t bytes_down() const { return bytes_down_; }
  std::size_t messages() const { return messages_; }

  // Loses the connection between a rank and its neighbours, as the death of the rank does.
  void kill(int rank, const std::string& why);

 private:
  void submit_fresh(Node& n);
  void fail(Node& n, const std::vector<FailedOperation>& failed);
  void apply(int rank, const wire::Decision& decision);
  void send_down(int rank, const wire::Decision& decision);

  topology::TreePlan plan_;
  Coordinator coordinator_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<bool> dead_;
  std::deque<std::vector<std::int64_t>> inputs_;
  TimePoint now_{std::chrono::hours(1)};
  std::size_t bytes_up_ = 0;
  std::size_t bytes_down_ = 0;
  std::size_t messages_ = 0;
};

CoordinatorOptions job_of(int size, int radix = 2);

// One that no other has.
OperationId new_operation();

// The rank submits one allreduce of this name.
void submit(Cluster& cluster, int rank, const std::string& name, Shape shape = {4});

// One step of training: every rank submits `count` tensors, then all of them run.
void run_step(Cluster& cluster, int count);

}  // namespace hvd::negotiation::test
