// What of the cached tensors callers exchange: slots are given out and taken away as the engine learns of them.
#include <memory>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/collectives/kernels/kernels.h"
#include "runtime/engine/small_exchange.h"

namespace hvd::engine {

// Groups are exchanged where they are small, and by whoever submits them: a larger one takes the lane, which copies no
// lists. Their elements are reduced in one go.
std::size_t SmallExchange::bytes_to_exchange(const Responses& responses) {
  const wire::Response& first = *responses.front();
  if (first.op != OpType::kAllreduce || first.on_gpu || !kernels::can_reduce(first.dtype, reduction_of(first)))
    return 0;
  const std::size_t element = element_size(first.dtype);
  std::size_t left = (responses.size() > 1 ? kMostAtOnce : kMostBytes) / element;
  std::size_t count = 0;
  for (const auto& each : responses) {
    const auto elements = static_cast<std::size_t>(num_elements(each->shape));
    if (elements > left || each->dtype != first.dtype || each->reduce_op != first.reduce_op ||
        each->prescale != first.prescale || each->postscale != first.postscale)
      return 0;
    left -= elements;
    count += elements;
  }
  return count * element;
}

ReduceOp SmallExchange::reduction_of(const wire::Response& response) {
  return response.reduce_op == ReduceOp::kAverage ? ReduceOp::kSum : response.reduce_op;
}

void SmallExchange::leave(std::int32_t process_set) {
  const Locked lock(*this);
  Set* const set = is_closed_ ? nullptr : set_of(table_.sets()->share(process_set));
  if (set == nullptr) return;
  set->leaves = true;  // also of what becomes known from now on
  seal_all(*set);
}

void SmallExchange::learn(const wire::Decision& decision, const topology::ProcessSetTable& before,
                          const topology::ProcessSetTable& after) {
  const Locked lock(*this);
  if (is_closed_) return;
  for (const wire::DecisionItem& item : decision.items) {
    if (const auto* response = std::get_if<wire::Response>(&item)) {
      add(*response, before);
    } else if (const auto* hit = std::get_if<wire::CacheHit>(&item)) {
      use(hit->bit);
    } else if (const auto* evicted = std::get_if<wire::Evict>(&item)) {
      evict(evicted->bit);
    }
  }
  for (auto at = sets_.begin(); at != sets_.end();) {
    const topology::ProcessSet* const now = after.find(at->first);
    const bool is_there = now != nullptr && now->context_id == at->second.set->context_id;
    if (!is_there) {
      seal_all(at->second);
      std::erase_if(by_bit_, [&](const auto& bit) { return bit.second.process_set == at->first; });
    }
    at = is_there ? std::next(at) : sets_.erase(at);
  }
}

// A name that has a slot and is cached anew was requested by all members: so all are through with the slot's generation
// before.
void SmallExchange::add(const wire::Response& response, const topology::ProcessSetTable& sets) {
  Set* const set = set_of(sets.share(response.process_set));
  if (set == nullptr) return;
  if (response.op == OpType::kJoin) set->has_joined = false;
  if (response.bit == wire::CacheBit::kNone || set->slots == nullptr) return;
  if (response.op != OpType::kAllreduce || response.on_gpu) return;
  const std::uint64_t bit = wire::value(response.bit);
  Cached& cached = by_bit_[bit];
  cached.process_set = set->set->id;
  cached.responses.push_back(std::make_shared<const wire::Response>(response));
  if (cached.responses.size() < response.group_size) return;
  if (bytes_to_exchange(cached.responses) == 0) {
    by_bit_.erase(bit);
    return;
  }
  Tensor* const tensor = find(*set, response);
  cached.was_used = tensor != nullptr;
  if (tensor != nullptr) open(*set, *tensor, cached.responses);
}

SmallExchange::Tensor* SmallExchange::find(Set& set, const wire::Response& response) {
  if (response.group_size > 0) {
    const auto group = set.groups.find(response.group_key);
    return group == set.groups.end() ? nullptr : &group->second;
  }
  const auto tensor = set.tensors.find(response.name);
  return tensor == set.tensors.end() ? nullptr : &tensor->second;
}

// Slots are given out in the order in which all members learn that cached tensors are used again, and stay their
// names': so names that occur once take none. Half of them are for what is exchanged by whoever submits it.
void SmallExchange::use(wire::CacheBit bit) {
  const auto of = by_bit_.find(wire::value(bit));
  if (of == by_bit_.end() || std::exchange(of->second.was_used, true)) return;
  const Responses& cached = of->second.responses;
  const wire::Response& first = *cached.front();
  Set& set = sets_.at(of->second.process_set);
  const std::size_t most = bytes_to_exchange(cached) > kMostAtOnce ? set.slots->slots() / 2 : set.slots->slots();
  if (set.next_slot >= most) return;
  Tensor& tensor = first.group_size > 0 ? set.groups[first.group_key] : set.tensors[first.name];
  tensor.data = collectives::ExchangedTensor(set.slots, set.next_slot++);
  open(set, tensor, cached);
}

void SmallExchange::open(Set& set, Tensor& tensor, const Responses& cached) {
  if (!tensor.data.renew(bytes_to_exchange(cached))) return;
  tensor.responses = cached;
  tensor.places.clear();
  tensor.is_sealed = false;
  tensor.renews = set.has_joined;
  if (set.has_joined || set.leaves) seal(set, tensor);
}

// The name keeps its slot.
void SmallExchange::evict(wire::CacheBit bit) {
  const auto of = by_bit_.find(wire::value(bit));
  if (of == by_bit_.end()) return;
  const Responses& cached = of->second.responses;
  if (cached.size() < cached.front()->group_size) {
    HVD_LOG(kDebug, "a group's bit is evicted before all of it is announced", log_field("members", cached.size()),
            log_field("of", cached.front()->group_size));
  }
  Set& set = sets_.at(of->second.process_set);
  Tensor* const tensor = find(set, *cached.front());
  if (tensor != nullptr) seal(set, *tensor);
  by_bit_.erase(of);
}

// Also of what becomes known from now on.
void SmallExchange::begin_join(const topology::ProcessSetPtr& of) {
  Set* const set = set_of(of);
  if (set == nullptr) return;
  set->has_joined = true;
  for_each_tensor(*set, [](Tensor& tensor) {
    if (!tensor.is_sealed) tensor.renews = true;
  });
  seal_all(*set);
}

}  // namespace hvd::engine
