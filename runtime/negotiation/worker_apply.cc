// The half of Worker that applies decisions.
#include <algorithm>
#include <utility>
#include <variant>

#include "runtime/negotiation/worker.h"

namespace hvd::negotiation {

using wire::CacheBit;
using wire::value;

namespace {

bool lists(const std::vector<int>& ascending, int rank) {
  return std::binary_search(ascending.begin(), ascending.end(), rank);
}

void mark_released(WorkerOutput& out, std::int32_t process_set) {
  if (std::find(out.released.begin(), out.released.end(), process_set) == out.released.end()) {
    out.released.push_back(process_set);
  }
}

Status disagree(int rank, const std::string& what) {
  return Status::internal("rank " + std::to_string(rank) + " and the coordinator disagree: " + what);
}

}  // namespace

Result<WorkerOutput> Worker::on_decision(const wire::Decision& decision) {
  WorkerOutput out;
  out.limits = decision.limits;
  out.sets = sets_;
  if (stopped_) return out;
  if (decision.sequence != 0) {
    if (decision.sequence != last_sequence_ + 1) {
      return disagree(options_.rank,
                      "decision " + std::to_string(decision.sequence) + " follows " + std::to_string(last_sequence_));
    }
    last_sequence_ = decision.sequence;
  }
  out.ready.reserve(decision.items.size());
  for (const wire::DecisionItem& item : decision.items) {
    const Status applied = std::visit([&](const auto& it) { return apply(it, out); }, item);
    if (!applied.is_ok()) return applied;
  }
  if (decision.stop) {
    out.stop = decision.stop;
    std::vector<FailedOperation> failed = fail_all(decision.stop->status());
    out.failed.insert(out.failed.end(), failed.begin(), failed.end());
  }
  out.sets = sets_;
  return out;
}

Status Worker::apply(const wire::Response& response, WorkerOutput& out) {
  if (sets_->find(response.process_set) == nullptr) {
    return disagree(options_.rank, "unknown process set " + std::to_string(response.process_set));
  }
  if (response.bit != CacheBit::kNone) {
    const auto owner = set_of_bit_.try_emplace(value(response.bit), response.process_set).first;
    if (owner->second != response.process_set) {
      return disagree(options_.rank, "bit " + std::to_string(value(response.bit)) + " is of process set " +
                                         std::to_string(owner->second) + " and of process set " +
                                         std::to_string(response.process_set));
    }
  }
  const auto at = states_.find(response.process_set);
  if (at == states_.end()) return Status::ok();  // not a member
  mark_released(out, response.process_set);
  SetState& set = at->second;
  if (response.op == OpType::kJoin) return apply_join(response, set, out);
  auto shared = std::make_shared<const wire::Response>(response);
  if (lists(response.joined, options_.rank)) {
    if (!response.is_error()) out.ready.push_back({std::move(shared), OperationId::kNone});
    return Status::ok();
  }
  const auto sent = set.sent_full.find(response.name);
  if (sent == set.sent_full.end()) {
    return disagree(options_.rank, "\"" + response.name + "\" is to run, but was not reported");
  }
  SentFull& full = sent->second;
  out.ready.push_back({shared, full.own.operation});
  const bool is_cached = response.bit != CacheBit::kNone;
  if (is_cached && !set.cache.insert(std::move(shared), std::move(full.own.request), full.place)) {
    return disagree(options_.rank,
                    "bit " + std::to_string(value(response.bit)) + " is not that of \"" + response.name + "\"");
  }
  set.sent_full.erase(sent);
  return Status::ok();
}

Status Worker::apply_join(const wire::Response& response, SetState& set, WorkerOutput& out) {
  if (!set.join_sent) return disagree(options_.rank, "a join ends that this rank did not report");
  out.ready.push_back({std::make_shared<const wire::Response>(response), set.join});
  set.join = OperationId::kNone;
  set.join_sent = false;
  set.sent_bits_flushed = false;
  std::deque<Submission> held = std::exchange(set.held, {});
  for (Submission& own : held) {
    if (set.leaving) {
      for (const OwnRequest& each : own.all())
        out.failed.push_back({each.operation, removed_status(response.process_set, each.request.name)});
    } else if (set.join == OperationId::kNone) {
      accept(set, std::move(own));
    } else {
      set.held.push_back(std::move(own));  // behind the next join
    }
  }
  return Status::ok();
}

const WorkerCache::Entry* Worker::cached(wire::CacheBit bit) {
  const auto owner = set_of_bit_.find(value(bit));
  const auto at = owner == set_of_bit_.end() ? states_.end() : states_.find(owner->second);
  return at == states_.end() ? nullptr : at->second.cache.find(bit);
}

// A member without an operation of its own takes part with zeros if it has joined; otherwise the root has counted a
// rank that did not report, and the session cannot go on.
Status Worker::apply(const wire::CacheHit& hit, WorkerOutput& out) {
  const auto owner = set_of_bit_.find(value(hit.bit));
  if (owner == set_of_bit_.end()) return disagree(options_.rank, "unknown bit " + std::to_string(value(hit.bit)));
  const auto at = states_.find(owner->second);
  if (at == states_.end()) return Status::ok();  // not a member
  if (hit.elements.empty()) mark_released(out, owner->second);
  SetState& set = at->second;
  WorkerCache::Entry* const cached = set.cache.find(hit.bit);
  if (cached == nullptr) return disagree(options_.rank, "bit " + std::to_string(value(hit.bit)) + " is not cached");
  const std::string& name = cached->responses.front()->name;
  if (!hit.elements.empty() && hit.elements.size() != cached->small.bytes()) {
    return disagree(options_.rank, "\"" + name + "\" has a result of " + std::to_string(hit.elements.size()) +
                                       " bytes, expected " + std::to_string(cached->small.bytes()));
  }
  const std::optional<Submission> own = take_sent(set, *cached);
  if (!own && (!set.join_sent || !hit.elements.empty()))
    return disagree(options_.rank, "\"" + name + "\" is to run, but was not reported");
  std::size_t at_element = 0;
  for (std::size_t i = 0; i < cached->responses.size(); ++i) {
    OwnResponse& ready = out.ready.emplace_back(OwnResponse{cached->responses[i]});
    if (own) ready.operation = own->all()[cached->places[i]].operation;
    if (hit.elements.empty()) continue;
    ready.elements = hit.elements.substr(at_element, cached->small.bytes_of(i));
    at_element += cached->small.bytes_of(i);
  }
  return Status::ok();
}

// An operation that was sent as the evicted bit has to be said in full, as if it had just been submitted: the root has
// forgotten it with the bit.
Status Worker::apply(const wire::Evict& evict, WorkerOutput&) {
  const auto owner = set_of_bit_.find(value(evict.bit));
  if (owner == set_of_bit_.end()) {
    return disagree(options_.rank, "eviction of the unknown bit " + std::to_string(value(evict.bit)));
  }
  const auto at = states_.find(owner->second);
  set_of_bit_.erase(owner);
  if (at == states_.end()) return Status::ok();  // not a member
  SetState& set = at->second;
  WorkerCache::Entry* const cached = set.cache.find(evict.bit);
  if (cached == nullptr) return disagree(options_.rank, "bit " + std::to_string(value(evict.bit)) + " is not cached");
  if (std::optional<Submission> own = take_sent(set, *cached)) set.queue.push_back(std::move(*own));
  set.cache.erase(evict.bit);
  return Status::ok();
}

Status Worker::restore(wire::Decision& decision) const {
  auto lists = static_lists_.begin();
  for (wire::DecisionItem& item : decision.items) {
    auto* change = std::get_if<wire::SetDecision>(&item);
    if (change == nullptr || change->kind != wire::SetChange::Kind::kStatic) continue;
    const bool known =
        lists != static_lists_.end() && (change->error != StatusCode::kOk || change->entries.size() == lists->size());
    if (!known) return disagree(options_.rank, "process sets are registered that this rank did not give to init()");
    for (std::size_t i = 0; i < change->entries.size(); ++i) change->entries[i].ranks = (*lists)[i];
    ++lists;
  }
  return Status::ok();
}

Status Worker::apply(const wire::SetDecision& decision, WorkerOutput& out) {
  if (decision.kind == wire::SetChange::Kind::kStatic && !static_lists_.empty()) static_lists_.pop_front();
  if (decision.changes_sets()) {
    topology::ProcessSetTable next = *sets_;
    for (const wire::SetDecision::Entry& entry : decision.entries) {
      if (decision.kind == wire::SetChange::Kind::kRemove) {
        HVD_RETURN_IF_ERROR(remove_set(entry.id, next, out));
      } else if (!entry.existed) {
        const Status added = next.insert({entry.id, entry.context_id, entry.ranks});
        if (!added.is_ok()) return disagree(options_.rank, added.message());
        if (next.find(entry.id)->contains(options_.rank)) states_.try_emplace(entry.id);
      }
    }
    sets_ = std::make_shared<const topology::ProcessSetTable>(std::move(next));
  }
  out.set_decisions.push_back(decision);
  return Status::ok();
}

Status Worker::remove_set(std::int32_t id, topology::ProcessSetTable& table, WorkerOutput& out) {
  if (topology::ProcessSetPtr removed = table.share(id)) out.removed_sets.push_back(std::move(removed));
  if (const Status s = table.remove(id); !s.is_ok()) return disagree(options_.rank, s.message());
  if (const auto at = states_.find(id); at != states_.end()) {
    drop_set(at->second, [&](const std::string& name) { return removed_status(id, name); }, out.failed);
    states_.erase(at);
  }
  std::erase_if(set_of_bit_, [&](const auto& bit) { return bit.second == id; });
  return Status::ok();
}

Status Worker::apply(const wire::WaitAnswer& answer, WorkerOutput& out) {
  out.answered_contexts.push_back(answer.context_id);
  return Status::ok();
}

}  // namespace hvd::negotiation
