#include "test/runtime/negotiation/cluster.h"

#include <catch2/catch.hpp>

#include "runtime/wire/codec.h"

namespace hvd::negotiation::test {

Cluster::Node::Node(const topology::TreePlan& plan, int rank, const WorkerOptions& options)
    : queue(rank, topology::ProcessSetTable(plan.size())),
      worker(options, topology::ProcessSetTable(plan.size())),
      router(plan, rank) {
  if (rank > 0) relay = std::make_unique<Relay>(plan, rank, topology::ProcessSetTable(plan.size()));
}

Cluster::Cluster(const CoordinatorOptions& options, WorkerOptions worker_options)
    : plan_(options.size, options.radix), coordinator_(options), dead_(static_cast<std::size_t>(options.size)) {
  for (int rank = 0; rank < options.size; ++rank) {
    worker_options.rank = rank;
    nodes_.push_back(std::make_unique<Node>(plan_, rank, worker_options));
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

void Cluster::submit_fresh(Node& n) {
  std::vector<Submission> fresh = n.queue.fetch();
  for (const Submission& s : fresh) n.names[s.entry] = {s.request.process_set, s.request.name};
  fail(n, n.worker.submit(std::move(fresh)));
}

void Cluster::fail(Node& n, const std::vector<FailedOp>& failed) {
  for (const FailedOp& op : failed) {
    const auto& [set, name] = n.names.at(op.entry);
    n.queue.complete(set, name);
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
    for (const topology::ProcessSet& removed : output.value().removed_sets) {
      if (removed.id == id) return removed.context_id;
    }
    const topology::ProcessSet* set = n.worker.sets().find(id);
    REQUIRE(set != nullptr);
    return set->context_id;
  };
  std::map<std::int32_t, std::size_t> counts;
  for (const ReadyOp& op : output.value().ready) {
    const wire::Response& r = *op.response;
    n.lanes[r.process_set].push_back({r.process_set, context_of(r.process_set), r.name, r.op, r.shape, r.error_message,
                                      op.entry, r.root_rank, r.first_dims});
    ++counts[r.process_set];
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
  for (const wire::SetDecision& change : output.value().set_decisions) {
    n.set_decisions.push_back(change);
    for (const auto& entry : change.entries) {
      if (change.kind != wire::SetChange::Kind::kRemove && !entry.existed) {
        n.queue.open_set({entry.id, entry.context_id, entry.ranks});
      }
    }
  }
  fail(n, output.value().failed);
  if (output.value().stop) n.stop = output.value().stop;
}

bool Cluster::execute(int rank, std::int32_t process_set) {
  Node& n = node(rank);
  auto& lane = n.lanes[process_set];
  if (lane.empty()) return false;
  Executed done = std::move(lane.front());
  lane.pop_front();
  const bool same_set = n.queue.context_of(process_set) == done.context;
  if (done.op == OpType::kJoin) {
    n.queue.complete_join(process_set);
  } else if (done.entry != EntryId::kNone && same_set) {
    n.queue.complete(process_set, done.name);
  }
  n.log.push_back(std::move(done));
  if (rank == 0 && --n.releases[process_set].front().count == 0) {
    n.releases[process_set].pop_front();
    if (same_set && n.worker.sets().find(process_set) != nullptr) coordinator_.on_batch_done(process_set);
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

}  // namespace hvd::negotiation::test
