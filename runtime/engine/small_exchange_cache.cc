// What of the cached tensors callers exchange: slots are given out and taken away as the engine learns of them.
#include <memory>
#include <utility>

#include "runtime/collectives/kernels/kernels.h"
#include "runtime/engine/small_exchange.h"

namespace hvd::engine {

namespace {

// The bytes of a tensor that members may exchange; else 0.
std::size_t bytes_to_exchange(const wire::Response& response) {
  const ReduceOp op = SmallExchange::reduction_of(response);
  if (response.op != OpType::kAllreduce || response.on_gpu || !kernels::can_reduce(response.dtype, op)) return 0;
  const auto most = static_cast<std::int64_t>(SmallExchange::kMostBytes / element_size(response.dtype));
  const std::int64_t count = num_elements(response.shape);
  return count > most ? 0 : static_cast<std::size_t>(count) * element_size(response.dtype);
}

}  // namespace

ReduceOp SmallExchange::reduction_of(const wire::Response& response) {
  return response.reduce_op == ReduceOp::kAverage ? ReduceOp::kSum : response.reduce_op;
}

void SmallExchange::leave(std::int32_t process_set) {
  const MutexLock lock(mutex_);
  Set* const set = is_closed_ ? nullptr : set_of(table_.sets()->share(process_set));
  if (set == nullptr) return;
  set->leaves = true;  // also of what becomes known from now on
  seal_all(*set);
}

void SmallExchange::learn(const wire::Decision& decision, const topology::ProcessSetTable& before,
                          const topology::ProcessSetTable& after) {
  const MutexLock lock(mutex_);
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
  if (response.bit == wire::CacheBit::kNone || response.group_size > 0) return;
  if (set->slots == nullptr || bytes_to_exchange(response) == 0) return;
  const auto cached = std::make_shared<const wire::Response>(response);
  const auto tensor = set->tensors.find(response.name);
  const bool has_slot = tensor != set->tensors.end();
  by_bit_[wire::value(response.bit)] = {set->set->id, cached, has_slot};
  if (has_slot) open(*set, tensor->second, cached);
}

// Slots are given out in the order in which all members learn that cached tensors are used again, and stay their
// names': so names that occur once take none. Half of them are for what is exchanged by whoever submits it.
void SmallExchange::use(wire::CacheBit bit) {
  const auto of = by_bit_.find(wire::value(bit));
  if (of == by_bit_.end() || std::exchange(of->second.was_used, true)) return;
  const auto& cached = of->second.response;
  Set& set = sets_.at(of->second.process_set);
  const std::size_t most = bytes_to_exchange(*cached) > kMostAtOnce ? set.slots->slots() / 2 : set.slots->slots();
  if (set.next_slot >= most) return;
  Tensor& tensor = set.tensors[cached->name];
  tensor.data = collectives::ExchangedTensor(set.slots, set.next_slot++);
  open(set, tensor, cached);
}

void SmallExchange::open(Set& set, Tensor& tensor, const std::shared_ptr<const wire::Response>& cached) {
  if (!tensor.data.renew(bytes_to_exchange(*cached))) return;
  tensor.response = cached;
  tensor.is_sealed = false;
  tensor.has_met_join = set.has_joined;
  if (set.has_joined || set.leaves) seal(set, tensor);
}

// The name keeps its slot.
void SmallExchange::evict(wire::CacheBit bit) {
  const auto of = by_bit_.find(wire::value(bit));
  if (of == by_bit_.end()) return;
  Set& set = sets_.at(of->second.process_set);
  const auto tensor = set.tensors.find(of->second.response->name);
  if (tensor != set.tensors.end()) seal(set, tensor->second);
  by_bit_.erase(of);
}

// Also of what becomes known from now on.
void SmallExchange::begin_join(const topology::ProcessSetPtr& of) {
  Set* const set = set_of(of);
  if (set == nullptr) return;
  set->has_joined = true;
  for (auto& [name, tensor] : set->tensors) {
    if (!tensor.is_sealed) tensor.has_met_join = true;
  }
  seal_all(*set);
}

}  // namespace hvd::engine
