#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/negotiation/coordinator.h"
#include "runtime/negotiation/decision_router.h"
#include "runtime/negotiation/relay.h"
#include "runtime/negotiation/worker.h"

namespace hvd::simulate {

using Nanoseconds = std::chrono::nanoseconds;

// What a message takes beside the work of the rank that handles it.
struct Network {
  int ranks_per_host = 1;
  Nanoseconds latency{25000};       // between hosts
  Nanoseconds local_latency{8000};  // inside a host
  Nanoseconds per_message{4000};    // of its sender's time, and of its receiver's: system calls
  double bytes_per_second = 12.5e9;
};

// What negotiation has cost one rank.
struct Cost {
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  Nanoseconds work{};  // processor time of the rank's code, as it took here; without system calls

  std::uint64_t messages() const { return messages_sent + messages_received; }
  std::uint64_t bytes() const { return bytes_sent + bytes_received; }
};

// The negotiation of a job of any size in one thread: every rank's worker, relay or coordinator, and router are the
// real ones; the network and the clock are not. A rank handles one message after another, as its engine does; that
// takes it the processor time that it takes here. Collectives take none. Externally synchronised; deterministic but for
// times.
class VirtualJob {
 public:
  VirtualJob(const negotiation::CoordinatorOptions& options, const Network& network);
  VirtualJob(const VirtualJob&) = delete;
  VirtualJob& operator=(const VirtualJob&) = delete;

  int size() const { return static_cast<int>(nodes_.size()); }
  // What a rank asks for, so much later than now. All of one call are in its next report.
  void submit(int rank, std::vector<wire::Request> requests, Nanoseconds later = {});
  void request_set_change(int rank, wire::SetChange change);
  // Until no message is under way and at most so many operations have not been released on their ranks.
  void run(std::size_t left = 0);

  // Since begin_round(), which ends what was before.
  void begin_round();
  const Cost& cost(int rank) const { return nodes_[static_cast<std::size_t>(rank)]->cost; }
  // From the last submission to the last release on any rank.
  Nanoseconds critical_path() const { return finished_ - last_submission_; }

 private:
  struct Node {
    Node(const topology::TreePlan& plan, int rank, const topology::ProcessSets& sets);
    negotiation::Worker worker;
    std::unique_ptr<negotiation::Relay> relay;  // none at the root
    negotiation::DecisionRouter router;
    TimePoint free_at{};  // it is busy until then
    std::optional<TimePoint> armed;
    Cost cost;
  };
  enum class Kind { kMessage, kOwn, kTimer };
  struct Event {
    int rank = 0;
    Kind kind = Kind::kOwn;
    std::function<void()> handle;
  };
  struct Outgoing {
    int to = 0;
    bool up = false;
    std::shared_ptr<const Bytes> bytes;
  };

  Node& node(int rank) { return *nodes_[static_cast<std::size_t>(rank)]; }
  void add(TimePoint at, Event event);
  void handle(TimePoint at, const Event& event);
  void send(int from, const Outgoing& outgoing, TimePoint departure);
  // As EngineLoop::pump() and deliver().
  void pump(int rank);
  void move_reports(int rank);
  void take_report(int rank, int from, wire::Report report);
  void deliver(int rank, wire::Decision decision);
  void arm(int rank);

  const Network network_;
  const topology::TreePlan plan_;
  negotiation::Coordinator coordinator_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::multimap<TimePoint, Event> events_;  // of one time: in the order in which they were added
  std::size_t under_way_ = 0;               // events but timers
  std::size_t pending_ = 0;                 // operations and changes of process sets that ranks wait for
  std::uint64_t next_operation_ = 1;
  TimePoint now_{std::chrono::hours(1)};  // as the rank sees it that is at work
  std::vector<Outgoing> outbox_;          // of that rank
  bool has_released_ = false;
  TimePoint last_submission_{};
  TimePoint finished_{};
};

}  // namespace hvd::simulate
