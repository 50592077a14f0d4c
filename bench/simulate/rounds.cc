#include "bench/simulate/rounds.h"

#include <algorithm>
#include <random>
#include <utility>

namespace hvd::simulate {
namespace {

wire::Request join_request() {
  wire::Request request;
  request.op = OpType::kJoin;
  request.name = wire::kJoinName;
  return request;
}

}  // namespace

Rounds::Rounds(const negotiation::CoordinatorOptions& options, const Network& network, int tensors)
    : job_(options, network), versions_(static_cast<std::size_t>(tensors), 0) {}

wire::Request Rounds::request(std::size_t tensor) const {
  wire::Request request;
  request.name = "allreduce.module.layer" + std::to_string(tensor) + ".weight/" + std::to_string(versions_[tensor]);
  request.shape = {512, 512, 3, 3};
  return request;
}

std::vector<wire::Request> Rounds::all() const {
  std::vector<wire::Request> requests;
  for (std::size_t i = 0; i < versions_.size(); ++i) requests.push_back(request(i));
  return requests;
}

RoundCost Rounds::round(std::string name, const Submit& submit, std::size_t left) {
  job_.begin_round();
  for (int rank = 0; rank < job_.size(); ++rank) submit(rank);
  job_.run(left);
  RoundCost cost;
  cost.name = std::move(name);
  for (int rank = 0; rank < job_.size(); ++rank) {
    const Cost& one = job_.cost(rank);
    cost.most_messages = std::max(cost.most_messages, one.messages());
    cost.most_bytes = std::max(cost.most_bytes, one.bytes());
    cost.most_work = std::max(cost.most_work, one.work);
  }
  cost.root_work = job_.cost(0).work;
  cost.critical_path = job_.critical_path();
  return cost;
}

RoundCost Rounds::start() {
  wire::SetChange change;
  change.kind = wire::SetChange::Kind::kStatic;
  return round("start", [&](int rank) { job_.request_set_change(rank, change); });
}

RoundCost Rounds::first() {
  return round("first", [&, requests = all()](int rank) { job_.submit(rank, requests); });
}

RoundCost Rounds::cached() {
  return round("cached", [&, requests = all()](int rank) { job_.submit(rank, requests); });
}

RoundCost Rounds::renamed() {
  for (std::size_t i = 50; i < versions_.size(); i += 100) ++versions_[i];
  return round("one new name in a hundred", [&, requests = all()](int rank) { job_.submit(rank, requests); });
}

RoundCost Rounds::shuffled(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  return round("shuffled on each rank", [&, requests = all()](int rank) mutable {
    std::shuffle(requests.begin(), requests.end(), random);
    job_.submit(rank, requests);
  });
}

RoundCost Rounds::straggler(Nanoseconds late) {
  return round("one rank is late", [&, requests = all()](int rank) {
    job_.submit(rank, requests, rank == job_.size() - 1 ? late : Nanoseconds{});
  });
}

RoundCost Rounds::one() {
  return round("one cached tensor", [&](int rank) { job_.submit(rank, {request(0)}); });
}

RoundCost Rounds::joined() {
  const auto submit = [&, requests = all()](int rank) {
    job_.submit(rank, rank == job_.size() - 1 ? std::vector{join_request()} : requests);
  };
  return round("cached, one rank has joined", submit, 1);
}

RoundCost Rounds::join() {
  return round("all others join", [&](int rank) {
    if (rank != job_.size() - 1) job_.submit(rank, {join_request()});
  });
}

}  // namespace hvd::simulate
