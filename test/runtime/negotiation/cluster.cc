#include "test/runtime/negotiation/cluster.h"

#include <catch2/catch.hpp>

#include "runtime/wire/codec.h"

namespace hvd::negotiation::test {

Status PendingOperations::enter(OwnRequest own) {
  const topology::ProcessSet* set = sets_->find(own.request.process_set);
  if (set == nullptr || closed_.contains(set->context_id) || !set->contains(rank_)) {
    return Status::invalid_argument("not a set of this rank");
  }
  own.request.rank = rank_;
  const Name name{set->context_id, own.request.op == OpType::kJoin, own.request.name};
  if (!names_.insert(name).second) return Status::invalid_argument("pending already");
  pending_[own.operation] = name;
  fresh_.push_back(std::move(own));
  return Status::ok();
}

Status PendingOperations::add(std::vector<OwnRequest> group) {
  std::vector<wire::Request> requests;
  for (const OwnRequest& own : group) requests.push_back(own.request);
  wire::make_group(requests);
  for (std::size_t i = 0; i < group.size(); ++i) {
    Status entered = enter({requests[i], group[i].operation, group[i].input});
    if (entered.is_ok()) continue;
    for (; i > 0; --i, fresh_.pop_back()) complete(group[i - 1].operation);
    return entered;
  }
  return Status::ok();
}

Status PendingOperations::add_join(std::int32_t process_set, OperationId operation) {
  OwnRequest own;
  own.request.process_set = process_set;
  own.request.op = OpType::kJoin;
  own.request.name = wire::kJoinName;
  own.operation = operation;
  return enter(std::move(own));
}

void PendingOperations::complete(OperationId operation) {
  const auto at = pending_.find(operation);
  REQUIRE(at != pending_.end());
  names_.erase(at->second);
  pending_.erase(at);
}

Status PendingOperations::close_set(std::int32_t id) {
  const topology::ProcessSet* set = sets_->find(id);
  if (set == nullptr || id == kGlobalProcessSet || !closed_.insert(set->context_id).second) {
    return Status::invalid_argument("not a set that can be removed");
  }
  return Status::ok();
}

Cluster::Node::Node(const topology::TreePlan& plan, int rank, const WorkerOptions& options,
                    const topology::ProcessSets& sets)
    : queue(rank, sets), worker(options, sets), router(plan, rank) {
  if (rank > 0) relay = std::make_unique<Relay>(plan, rank, *sets);
}

Cluster::Cluster(const CoordinatorOptions& options, WorkerOptions worker_options)
    : plan_(options.tree), coordinator_(options), dead_(static_cast<std::size_t>(options.tree.size())) {
  const topology::ProcessSets sets = topology::initial_sets(plan_.size());
  for (int rank = 0; rank < plan_.size(); ++rank) {
    worker_options.rank = rank;
    nodes_.push_back(std::make_unique<Node>(plan_, rank, worker_options, sets));
  }
}

bool Cluster::work(int rank) {
  if (dead_[static_cast<std::size_t>(rank)]) return false;
  Node& n = node(rank);
  bool worked = false;
  submit_fresh(n);
  while (n.worker.has_report(now_)) {
    worked = true;
    wire::Report report = n.worker.take_report(now_);
    const Status taken =
        rank == 0 ? coordinator_.add_report(0, report, now_) : n.relay->add_report(rank, std::move(report), now_);
    REQUIRE(taken.to_string() == "ok");
  }
  if (rank > 0) {
    while (n.relay->has_report(now_)) {
      worked = true;
      n.up.push_back(wire::encode(n.relay->take_report(now_)));
      bytes_up_ += n.up.back().size();
      ++messages_;
    }
    return worked;
  }
  while (const auto decision = coordinator_.step(now_)) {
    worked = true;
    send_down(0, *decision);
    apply(0, *decision);
  }
  return worked;
}

void Cluster::submit_fresh(Node& n) { fail(n, n.worker.submit(n.queue.fetch())); }

void Cluster::fail(Node& n, const std::vector<FailedOperation>& failed) {
  for (const FailedOperation& op : failed) {
    n.queue.complete(op.operation);
    n.failed.push_back(op);
  }
}

Status Cluster::request_set_change(int rank, wire::SetChange change) {
  Node& n = node(rank);
  if (change.kind == wire::SetChange::Kind::kRemove) HVD_RETURN_IF_ERROR(n.queue.close_set(change.set_id));
  submit_fresh(n);
  return n.worker.request_set_change(std::move(change));
}

void Cluster::send_down(int rank, const wire::Decision& decision) {
  for (const auto& outgoing : node(rank).router.route(decision)) {
    for (const int child : outgoing.children) {
      if (dead_[static_cast<std::size_t>(child)]) continue;
      node(child).down.push_back(outgoing.message);
      bytes_down_ += outgoing.message.size();
      ++messages_;
    }
  }
}

bool Cluster::deliver_up(int rank) {
  Node& n = node(rank);
  if (n.up.empty()) return false;
  Result<wire::Report> report = wire::decode_report(n.up.front());
  n.up.pop_front();
  REQUIRE(report.status().to_string() == "ok");
  const int parent = plan_.parent(rank);
  const Status taken = parent == 0 ? coordinator_.add_report(rank, report.value(), now_)
                                   : node(parent).relay->add_report(rank, std::move(report).value(), now_);
  REQUIRE(taken.to_string() == "ok");
  return true;
}

bool Cluster::deliver_down(int rank) {
  Node& n = node(rank);
  if (n.down.empty() || dead_[static_cast<std::size_t>(rank)]) return false;
  Result<wire::Decision> decision = wire::decode_decision(n.down.front());
  n.down.pop_front();
  REQUIRE(decision.status().to_string() == "ok");
  REQUIRE(n.worker.restore(decision.value()).to_string() == "ok");
  REQUIRE(n.relay->on_decision(decision.value()).to_string() == "ok");
  send_down(rank, decision.value());
  apply(rank, decision.value());
  return true;
}

void Cluster::apply(int rank, const wire::Decision& decision) {
  Node& n = node(rank);
  const Result<WorkerOutput> output = n.worker.on_decision(decision);
  REQUIRE(output.status().to_string() == "ok");
  const auto context_of = [&](std::int32_t id) {
    for (const topology::ProcessSetPtr& removed : output.value().removed_sets) {
      if (removed->id == id) return removed->context_id;
    }
    const topology::ProcessSet* set = n.worker.sets()->find(id);
    REQUIRE(set != nullptr);
    return set->context_id;
  };
  std::map<std::int32_t, std::size_t> counts;
  for (const OwnResponse& op : output.value().ready) {
    const wire::Response& r = *op.response;
    Executed ready{r.process_set, context_of(r.process_set),
                   r.name,        r.op,
                   r.shape,       r.error_message,
                   op.operation,  r.root_rank,
                   r.first_dims,  op.elements};
    if (op.elements.empty()) {
      ++counts[r.process_set];
    } else {
      n.queue.complete(op.operation);  // at once; the log shows it in the order of the decision
    }
    n.lanes[r.process_set].push_back(std::move(ready));
  }
  if (rank == 0) {
    for (const std::int32_t set : output.value().released) {
      if (counts[set] > 0) {
        n.releases[set].push_back({context_of(set), counts[set]});
      } else {
        coordinator_.on_batch_done(set);
      }
    }
  }
  for (const wire::SetDecision& change : output.value().set_decisions) n.set_decisions.push_back(change);
  n.queue.publish(output.value().sets);
  fail(n, output.value().failed);
  if (output.value().stop) n.stop = output.value().stop;
}

bool Cluster::execute(int rank, std::int32_t process_set) {
  Node& n = node(rank);
  auto& lane = n.lanes[process_set];
  if (lane.empty()) return false;
  Executed done = std::move(lane.front());
  lane.pop_front();
  const topology::ProcessSet* set = n.worker.sets()->find(process_set);
  const bool is_registered = set != nullptr && set->context_id == done.context;
  const bool was_run = done.elements.empty();
  if (was_run && done.operation != OperationId::kNone) n.queue.complete(done.operation);
  n.log.push_back(std::move(done));
  if (rank == 0 && was_run && --n.releases[process_set].front().count == 0) {
    n.releases[process_set].pop_front();
    if (is_registered) coordinator_.on_batch_done(process_set);
  }
  return true;
}

void Cluster::settle() {
  for (bool any = true; any;) {
    any = false;
    for (int rank = 0; rank < size(); ++rank) any |= work(rank);
    for (int rank = size() - 1; rank > 0; --rank) any |= deliver_up(rank);
    for (int rank = 1; rank < size(); ++rank) any |= deliver_down(rank);
    for (int rank = 0; rank < size(); ++rank) {
      for (auto& [set, lane] : node(rank).lanes) any |= execute(rank, set);
    }
  }
}

std::vector<Cluster::Executed> Cluster::take_log(int rank) { return std::exchange(node(rank).log, {}); }

void Cluster::kill(int rank, const std::string& why) {
  dead_[static_cast<std::size_t>(rank)] = true;
  node(rank).up.clear();
  const int parent = plan_.parent(rank);
  if (parent == 0) coordinator_.on_rank_lost(rank, why);
  if (parent > 0) node(parent).relay->add_lost(rank, why);
  for (const int child : plan_.children(rank)) {
    const wire::Decision abort = make_abort(rank, why);
    send_down(child, abort);
    apply(child, abort);
  }
}

CoordinatorOptions job_of(int size, int radix) {
  CoordinatorOptions options;
  options.tree = topology::TreePlan(size, radix);
  return options;
}

OperationId new_operation() {
  static std::uint64_t next = 1;
  return OperationId{next++};
}

void submit(Cluster& cluster, int rank, const std::string& name, Shape shape) {
  OwnRequest s;
  s.request.name = name;
  s.request.shape = std::move(shape);
  s.operation = new_operation();
  REQUIRE(cluster.node(rank).queue.add({s}).is_ok());
}

void run_step(Cluster& cluster, int count) {
  for (int rank = 0; rank < cluster.size(); ++rank) {
    for (int i = 0; i < count; ++i) submit(cluster, rank, "layer.with.a.long.name." + std::to_string(i));
  }
  cluster.settle();
  for (int rank = 0; rank < cluster.size(); ++rank) REQUIRE(static_cast<int>(cluster.take_log(rank).size()) == count);
}

}  // namespace hvd::negotiation::test
