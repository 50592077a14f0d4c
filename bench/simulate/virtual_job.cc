#include "bench/simulate/virtual_job.h"

#include <ctime>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/wire/codec.h"

namespace hvd::simulate {
namespace {

Nanoseconds processor_time() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + Nanoseconds(t.tv_nsec);
}

void check(const Status& status) { HVD_CHECK(status.is_ok(), status.to_string().c_str()); }

negotiation::WorkerOptions worker_of(int rank) {
  negotiation::WorkerOptions options;
  options.rank = rank;
  return options;
}

}  // namespace

VirtualJob::Node::Node(const topology::TreePlan& plan, int rank, const topology::ProcessSets& sets)
    : worker(worker_of(rank), sets), router(plan, rank) {
  if (rank > 0) relay = std::make_unique<negotiation::Relay>(plan, rank, *sets);
}

VirtualJob::VirtualJob(const negotiation::CoordinatorOptions& options, const Network& network)
    : network_(network), plan_(options.tree), coordinator_(options) {
  const topology::ProcessSets sets = topology::initial_sets(plan_.size());
  for (int rank = 0; rank < plan_.size(); ++rank) nodes_.push_back(std::make_unique<Node>(plan_, rank, sets));
  begin_round();
}

void VirtualJob::begin_round() {
  for (const auto& n : nodes_) {
    now_ = std::max(now_, n->free_at);
    n->cost = {};
  }
  last_submission_ = finished_ = now_;
}

void VirtualJob::submit(int rank, std::vector<wire::Request> requests, Nanoseconds later) {
  std::vector<negotiation::OwnRequest> own;
  for (wire::Request& request : requests) {
    request.rank = rank;
    own.push_back({std::move(request), negotiation::OperationId{next_operation_++}});
  }
  pending_ += own.size();
  last_submission_ = std::max(last_submission_, now_ + later);
  add(now_ + later, {rank, Kind::kOwn, [this, rank, own = std::move(own)] {
                       HVD_CHECK(node(rank).worker.submit(own).empty(), "an operation was refused");
                     }});
}

void VirtualJob::request_set_change(int rank, wire::SetChange change) {
  ++pending_;
  add(now_, {rank, Kind::kOwn,
             [this, rank, change = std::move(change)] { check(node(rank).worker.request_set_change(change)); }});
}

void VirtualJob::run(std::size_t left) {
  while (under_way_ > 0 || pending_ > left) {
    HVD_CHECK(!events_.empty(), "operations are left, and nothing will happen any more");
    const auto first = events_.begin();
    const TimePoint at = first->first;
    const Event event = std::move(first->second);
    events_.erase(first);
    if (event.kind != Kind::kTimer) --under_way_;
    handle(at, event);
  }
}

void VirtualJob::add(TimePoint at, Event event) {
  if (event.kind != Kind::kTimer) ++under_way_;
  events_.emplace(at, std::move(event));
}

// The rank's clock stands still while it works: what it decides depends on when it began.
void VirtualJob::handle(TimePoint at, const Event& event) {
  Node& n = node(event.rank);
  now_ = std::max(at, n.free_at);
  const Nanoseconds before = processor_time();
  event.handle();
  pump(event.rank);
  const Nanoseconds work = processor_time() - before;
  n.cost.work += work;
  n.free_at = now_ + work + (event.kind == Kind::kMessage ? network_.per_message : Nanoseconds{});
  for (const Outgoing& outgoing : std::exchange(outbox_, {})) {
    n.free_at += network_.per_message;
    send(event.rank, outgoing, n.free_at);
  }
  if (std::exchange(has_released_, false)) finished_ = std::max(finished_, n.free_at);
  arm(event.rank);
}

void VirtualJob::send(int from, const Outgoing& outgoing, TimePoint departure) {
  const int to = outgoing.to;
  const std::size_t size = outgoing.bytes->size();
  for (auto [rank, messages, bytes] : {std::tuple(from, &Cost::messages_sent, &Cost::bytes_sent),
                                       std::tuple(to, &Cost::messages_received, &Cost::bytes_received)}) {
    ++(node(rank).cost.*messages);
    node(rank).cost.*bytes += size;
  }
  const bool is_local = from / network_.ranks_per_host == to / network_.ranks_per_host;
  const Nanoseconds wire(static_cast<std::int64_t>(static_cast<double>(size) / network_.bytes_per_second * 1e9));
  add(departure + wire + (is_local ? network_.local_latency : network_.latency),
      {to, Kind::kMessage, [this, from, to, up = outgoing.up, bytes = outgoing.bytes] {
         if (up) return take_report(to, from, wire::decode_report(*bytes).value());
         deliver(to, wire::decode_decision(*bytes).value());
       }});
}

void VirtualJob::pump(int rank) {
  move_reports(rank);
  if (rank != 0) return;
  while (auto decision = coordinator_.step(now_)) {
    deliver(0, std::move(*decision));
    move_reports(0);
  }
}

void VirtualJob::move_reports(int rank) {
  Node& n = node(rank);
  while (n.worker.has_report(now_)) take_report(rank, rank, n.worker.take_report(now_));
  while (n.relay && n.relay->has_report(now_)) {
    outbox_.push_back(
        {plan_.parent(rank), true, std::make_shared<const Bytes>(wire::encode(n.relay->take_report(now_)))});
  }
}

void VirtualJob::take_report(int rank, int from, wire::Report report) {
  check(rank == 0 ? coordinator_.add_report(from, report, now_)
                  : node(rank).relay->add_report(from, std::move(report), now_));
}

void VirtualJob::deliver(int rank, wire::Decision decision) {
  Node& n = node(rank);
  check(n.worker.restore(decision));
  for (auto& outgoing : n.router.route(decision)) {
    const auto bytes = std::make_shared<const Bytes>(std::move(outgoing.message));
    for (const int child : outgoing.children) outbox_.push_back({child, false, bytes});
  }
  if (n.relay) check(n.relay->on_decision(decision));
  const auto output = n.worker.on_decision(decision);
  check(output.status());
  const auto& ready = output.value().ready;
  const auto own = [](const negotiation::OwnResponse& r) { return r.operation != negotiation::OperationId::kNone; };
  pending_ -= static_cast<std::size_t>(std::count_if(ready.begin(), ready.end(), own));
  pending_ -= output.value().set_decisions.size();
  has_released_ = has_released_ || !ready.empty();
  for (std::size_t i = 0; rank == 0 && i < output.value().released.size(); ++i) {
    add(now_, {0, Kind::kOwn, [this, set = output.value().released[i]] { coordinator_.on_batch_done(set); }});
  }
}

void VirtualJob::arm(int rank) {
  Node& n = node(rank);
  std::optional<TimePoint> next = n.worker.next_deadline();
  const auto other = rank == 0 ? coordinator_.next_deadline() : n.relay->next_deadline();
  if (other && (!next || *other < *next)) next = other;
  if (!next || next == n.armed) return;
  n.armed = next;
  add(*next, {rank, Kind::kTimer, [&n] { n.armed.reset(); }});
}

}  // namespace hvd::simulate
