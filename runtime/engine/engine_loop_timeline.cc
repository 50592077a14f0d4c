// What rank 0 sees of negotiation, for the timeline: of the process sets that it is in.
#include <algorithm>
#include <map>

#include "runtime/engine/engine_loop.h"

namespace hvd::engine {

namespace {

std::vector<int> ranks_of(const wire::RankRuns& runs) {
  std::vector<int> ranks;
  for (const wire::RankRun& run : runs) {
    for (int i = 0; i < run.count; ++i) ranks.push_back(run.first + i);
  }
  return ranks;
}

// Of the set's members those for which `from_rank` speaks when it says that a cached tensor is ready.
std::vector<int> ranks_below(const topology::TreePlan& tree, int from_rank, const topology::ProcessSet& set) {
  if (from_rank == 0) return {0};
  std::vector<int> ranks;
  std::ranges::copy_if(set.ranks, std::back_inserter(ranks),
                       [&](int rank) { return rank != 0 && tree.child_towards(0, rank) == from_rank; });
  return ranks;
}

}  // namespace

void EngineLoop::trace_report(int from_rank, const wire::Report& report) {
  recorder::Timeline& timeline = recorder_.timeline();
  if (!timeline.is_active()) return;
  const topology::ProcessSetTable& sets = *worker_.sets();
  for (const wire::MergedRequest& merged : report.requests) {
    const wire::Request& request = merged.request;
    const topology::ProcessSet* const set = sets.find(request.process_set);
    if (set == nullptr || !set->contains(own_rank())) continue;
    timeline.reported(request.op, request.process_set, request.name, ranks_of(merged.ranks));
  }
  for (const wire::Report::Join& join : report.joins) {
    const topology::ProcessSet* const set = sets.find(join.process_set);
    if (set == nullptr || !set->contains(own_rank())) continue;
    timeline.reported(OpType::kJoin, join.process_set, wire::kJoinName, {join.rank});
  }
  std::map<std::int32_t, std::vector<int>> below;
  const auto trace_bit = [&](wire::CacheBit bit) {
    const negotiation::WorkerCache::Entry* const cached = worker_.cached(bit);
    if (cached == nullptr) return;
    const std::int32_t id = cached->responses.front()->process_set;
    const auto [at, is_new] = below.try_emplace(id);
    if (is_new) at->second = ranks_below(tree(), from_rank, *sets.find(id));
    for (const auto& each : cached->responses) timeline.reported(each->op, id, each->name, at->second);
  };
  for (const wire::CacheBit bit : report.ready_bits) trace_bit(bit);
  for (const wire::ReadyTensor& tensor : report.ready_tensors) trace_bit(tensor.bit);
}

void EngineLoop::trace_decision(const negotiation::WorkerOutput& output) {
  recorder::Timeline& timeline = recorder_.timeline();
  if (!is_root() || !timeline.is_active()) return;
  timeline.cycle();
  for (const negotiation::OwnResponse& ready : output.ready) {
    const wire::Response& response = *ready.response;
    timeline.released(response.op, response.process_set, response.name);
    if (ready.operation != negotiation::OperationId::kNone) continue;
    // This rank has joined: it takes part with zeros, in nothing that the table of operations completes.
    timeline.ended(response.op, response.process_set, response.name, response.dtype, response.shape, response.status());
  }
}

}  // namespace hvd::engine
