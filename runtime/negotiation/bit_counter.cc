#include "runtime/negotiation/bit_counter.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <variant>

namespace hvd::negotiation {

using wire::CacheBit;
using wire::value;

BitCounter::BitCounter(topology::TreePlan plan, int rank, const topology::ProcessSetTable& sets)
    : plan_(plan), rank_(rank), children_(plan.children(rank)) {
  for (const topology::ProcessSetPtr& set : sets.sets()) add_set(set->id, set->ranks);
}

std::optional<int> BitCounter::unit_of(int rank) const {
  if (rank == rank_) return 0;
  const int child = plan_.child_towards(rank_, rank);
  if (child < 0) return std::nullopt;
  return 1 + child - children_.front();
}

void BitCounter::add_set(std::int32_t id, const std::vector<int>& ranks) {
  SetState state;
  state.members.resize(children_.size() + 1);
  state.joined.resize(children_.size() + 1);
  // Nobody below this rank has a lower number, and below most ranks there is nobody.
  for (auto rank = std::lower_bound(ranks.begin(), ranks.end(), rank_); rank != ranks.end(); ++rank) {
    if (children_.empty() && *rank != rank_) break;
    if (const std::optional<int> unit = unit_of(*rank)) {
      ++state.members[static_cast<std::size_t>(*unit)];
      state.needed |= Mask{1} << *unit;
    }
  }
  sets_.insert_or_assign(id, std::move(state));
}

void BitCounter::remove_set(std::int32_t id) {
  sets_.erase(id);
  std::erase_if(bits_, [id](const auto& bit) { return bit.second.process_set == id; });
}

Status BitCounter::add_bit(const wire::Response& response) {
  if (!sets_.contains(response.process_set)) {
    return Status::internal("bit " + std::to_string(value(response.bit)) + " belongs to the unknown process set " +
                            std::to_string(response.process_set));
  }
  BitState& bit = bits_[value(response.bit)];
  bit.process_set = response.process_set;
  bit.tensors.add(response);
  return Status::ok();
}

Status BitCounter::check_senders(int from_rank, const wire::Report& report) const {
  const std::optional<int> unit = unit_of(from_rank);
  if (!unit)
    return Status::internal("a report of rank " + std::to_string(from_rank) + ", which is not below rank " +
                            std::to_string(rank_));
  const auto refuse = [&](int rank) {
    return Status::internal("rank " + std::to_string(from_rank) + " reported for rank " + std::to_string(rank) +
                            ", which is not below it");
  };
  const auto check = [&](int rank) { return unit_of(rank) == unit ? Status::ok() : refuse(rank); };
  const auto check_runs = [&](const wire::RankRuns& runs) {
    for (const wire::RankRun& run : runs) {
      const bool own = from_rank == rank_;
      if (own ? run.first != rank_ || run.count != 1 : !plan_.has_run(from_rank, run.first, run.count))
        return refuse(run.first);
    }
    return Status::ok();
  };
  for (const auto& request : report.requests) HVD_RETURN_IF_ERROR(check_runs(request.ranks));
  for (const auto& join : report.joins) HVD_RETURN_IF_ERROR(check(join.rank));
  for (const auto& change : report.set_changes) HVD_RETURN_IF_ERROR(check_runs(change.ranks));
  for (const int rank : report.shutdown_ranks) HVD_RETURN_IF_ERROR(check(rank));
  for (const auto& wait : report.waits) {
    for (const int rank : wait.ranks) HVD_RETURN_IF_ERROR(check(rank));
  }
  return Status::ok();  // a lost rank may be anybody's neighbour
}

struct BitCounter::Update {
  BitCounter& bits;

  Status operator()(const wire::Response& response) const {
    if (response.op == OpType::kJoin) bits.clear_joins(response.process_set);
    if (response.bit == CacheBit::kNone) return Status::ok();
    return bits.add_bit(response);
  }
  Status operator()(const wire::CacheHit& hit) const {
    bits.reset(hit.bit);
    return Status::ok();
  }
  Status operator()(const wire::Evict& evict) const {
    bits.forget(evict.bit);
    return Status::ok();
  }
  Status operator()(const wire::WaitAnswer&) const { return Status::ok(); }
  Status operator()(const wire::SetDecision& decision) const {
    for (const auto& entry : decision.entries) {
      if (decision.kind == wire::SetChange::Kind::kRemove) {
        bits.remove_set(entry.id);
      } else if (!entry.existed) {
        bits.add_set(entry.id, entry.ranks);
      }
    }
    return Status::ok();
  }
};

Status BitCounter::on_decision(const wire::Decision& decision) {
  for (const wire::DecisionItem& item : decision.items) HVD_RETURN_IF_ERROR(std::visit(Update{*this}, item));
  return Status::ok();
}

bool BitCounter::check_complete(BitState& bit, const SetState& set) const {
  if (bit.complete || bit.reported == 0) return false;
  bit.complete = (set.needed & ~(bit.reported | set.fully_joined)) == 0;
  return bit.complete;
}

bool BitCounter::report(CacheBit bit, int unit) {
  const auto at = bits_.find(value(bit));
  if (at == bits_.end()) return false;
  at->second.reported |= Mask{1} << unit;
  return check_complete(at->second, sets_.at(at->second.process_set));
}

Result<bool> BitCounter::report(wire::ReadyTensor tensor, int unit) {
  const auto at = bits_.find(value(tensor.bit));
  if (at == bits_.end()) return false;
  BitState& bit = at->second;
  if (tensor.elements.size() != bit.tensors.bytes()) {
    return Status::internal(std::to_string(tensor.elements.size()) + " bytes of elements for bit " +
                            std::to_string(value(tensor.bit)) + ", expected " + std::to_string(bit.tensors.bytes()));
  }
  bit.elements.resize(children_.size() + 1);
  bit.elements[static_cast<std::size_t>(unit)] = std::move(tensor.elements);
  bit.with_elements |= Mask{1} << unit;
  return report(tensor.bit, unit);
}

std::string BitCounter::take_elements(CacheBit bit) {
  BitState& state = bits_.at(value(bit));
  std::string all;
  if (state.with_elements != sets_.at(state.process_set).needed) return all;
  for (std::string& unit : state.elements) {
    if (all.empty()) {
      all = std::move(unit);
    } else if (!unit.empty()) {
      state.tensors.reduce(all, unit);
    }
    unit.clear();
  }
  return all;
}

std::vector<CacheBit> BitCounter::join(std::int32_t process_set, int rank) {
  std::vector<CacheBit> complete;
  const auto at = sets_.find(process_set);
  const std::optional<int> unit = unit_of(rank);
  if (at == sets_.end() || !unit) return complete;
  SetState& set = at->second;
  const auto u = static_cast<std::size_t>(*unit);
  if (set.joined[u] == set.members[u] || ++set.joined[u] < set.members[u]) return complete;
  set.fully_joined |= Mask{1} << *unit;
  for (auto& [number, bit] : bits_) {
    if (bit.process_set == process_set && check_complete(bit, set)) complete.push_back(CacheBit{number});
  }
  std::sort(complete.begin(), complete.end());
  return complete;
}

int BitCounter::members(std::int32_t process_set) const {
  const auto at = sets_.find(process_set);
  return at == sets_.end() ? 0 : std::accumulate(at->second.members.begin(), at->second.members.end(), 0);
}

bool BitCounter::any_joined(std::int32_t process_set) const {
  const auto at = sets_.find(process_set);
  return at != sets_.end() &&
         std::any_of(at->second.joined.begin(), at->second.joined.end(), [](int n) { return n > 0; });
}

bool BitCounter::all_joined(std::int32_t process_set) const {
  const auto at = sets_.find(process_set);
  return at != sets_.end() && at->second.fully_joined == at->second.needed;
}

void BitCounter::clear_joins(std::int32_t process_set) {
  const auto at = sets_.find(process_set);
  if (at == sets_.end()) return;
  std::fill(at->second.joined.begin(), at->second.joined.end(), 0);
  at->second.fully_joined = 0;
}

void BitCounter::reset(CacheBit bit) {
  const auto at = bits_.find(value(bit));
  if (at == bits_.end()) return;
  at->second.reported = 0;
  at->second.complete = false;
  at->second.with_elements = 0;
  for (std::string& unit : at->second.elements) unit.clear();
}

}  // namespace hvd::negotiation
