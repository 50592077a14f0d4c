#include "runtime/engine/small_exchange.h"

#include <unistd.h>

#include <algorithm>
#include <span>

#include "runtime/base/spinner.h"
#include "runtime/collectives/kernels/kernels.h"
#include "runtime/engine/batch_run.h"

namespace hvd::engine {

using collectives::ExchangeSlots;
using State = ExchangeSlots::State;

namespace {

ReduceOp reduction_of(const wire::Response& response) {
  return response.reduce_op == ReduceOp::kAverage ? ReduceOp::kSum : response.reduce_op;
}

// Whether the cached tensor is what the operation asks for.
bool is_same(const Operation& operation, const wire::Response& cached) {
  return operation.op == cached.op && operation.input.dtype == cached.dtype && operation.input.device == kCpuDevice &&
         operation.reduce_op == cached.reduce_op && operation.prescale == cached.prescale &&
         operation.postscale == cached.postscale && operation.input.shape == cached.shape;
}

// The bytes of a tensor that members may exchange; else 0.
std::size_t bytes_to_exchange(const wire::Response& response) {
  const ReduceOp op = reduction_of(response);
  if (response.op != OpType::kAllreduce || response.on_gpu || !kernels::can_reduce(response.dtype, op)) return 0;
  const auto most = static_cast<std::int64_t>(SmallExchange::kMostBytes / element_size(response.dtype));
  const std::int64_t count = num_elements(response.shape);
  return count > most ? 0 : static_cast<std::size_t>(count) * element_size(response.dtype);
}

}  // namespace

// Each member reads what all others have left, where a collective cuts a tensor into slices: so a call has one meeting
// instead of several, but reads (members - 2) times a tensor's bytes more. Where members share cores, meetings count
// for more than bytes (docs/benchmarks.md, "Tensors that callers exchange").
std::size_t SmallExchange::most_bytes(int members) {
  constexpr std::size_t kMoreBytes = std::size_t{512} << 10;
  if (members <= 2 || members > ::sysconf(_SC_NPROCESSORS_ONLN)) return kMostBytes;
  return kMoreBytes / static_cast<std::size_t>(members - 2);
}

SmallExchange::SmallExchange(int rank, OperationTable& table, SlotsFactory factory, std::function<void()> notify)
    : rank_(rank), table_(table), factory_(std::move(factory)), notify_(std::move(notify)) {}

Result<HandlePtr> SmallExchange::add(Operation operation) {
  const MutexLock lock(mutex_);
  finish_last_use(operation);
  bool is_taken = false;
  const auto take = [&](const PendingOperationPtr& added) HVD_REQUIRES(mutex_) { return is_taken = start(added); };
  HVD_ASSIGN_OR_RETURN(auto handle, table_.add(std::move(operation), take));
  if (!is_taken) notify_();
  return handle;
}

SmallExchange::Set* SmallExchange::set_of(const topology::ProcessSetPtr& of) {
  if (of == nullptr || of->size() < 2 || !of->contains(rank_)) return nullptr;
  auto [at, is_new] = sets_.try_emplace(of->id);
  if (is_new) {
    at->second.set = of;
    at->second.slots = factory_(*of);
  }
  return &at->second;
}

void SmallExchange::finish_last_use(const Operation& operation) {
  const auto set = sets_.find(operation.process_set);
  if (set == sets_.end()) return;
  const auto found = set->second.tensors.find(operation.name);
  if (found == set->second.tensors.end() || found->second.open == nullptr) return;
  Tensor& tensor = found->second;
  if (tensor.data.look() == State::kComplete) {
    end(set->second, tensor, State::kComplete, false);
  }
}

// Whoever completes an operation with a callback is to be the engine or a lane: those go the ordinary way.
bool SmallExchange::start(const PendingOperationPtr& pending) {
  const Operation& operation = pending->operation;
  if (is_closed_) return false;
  if (operation.op == OpType::kJoin) {  // also of what becomes known from now on
    if (Set* const joins = set_of(pending->set)) {
      joins->has_joined = true;
      seal_all(*joins);
    }
    return false;
  }
  const auto at = sets_.find(operation.process_set);
  if (at == sets_.end() || at->second.set->context_id != pending->set->context_id) return false;
  Set& set = at->second;
  const auto found = set.tensors.find(operation.name);
  if (found == set.tensors.end() || found->second.is_sealed) return false;
  Tensor& tensor = found->second;
  const bool is_large = tensor.data.bytes() > kMostAtOnce;
  const bool is_too_large =
      is_large && (!operation.is_awaited || tensor.data.bytes() > most_bytes(set.slots->members()));
  if (operation.on_done || !is_same(operation, *tensor.response) || is_too_large) {
    seal(set, tensor);
    return false;
  }
  tensor.data.begin_use();
  if (!is_large) {
    const State state = tensor.data.come(operation.input.data);
    tensor.is_sealed = state == State::kSealed;
    if (state == State::kSealed) return false;
    if (state == State::kComplete) {
      set.slots->ring_others();
      finish(set, tensor, pending);
      return true;
    }
  }
  tensor.open = std::make_shared<SmallUse>(shared_from_this(), set.slots, tensor.data.use(), !is_large, pending);
  pending->handle.state().small_use = tensor.open;
  return true;
}

void SmallExchange::finish(const Set& set, const Tensor& tensor, const PendingOperationPtr& pending) {
  const wire::Response& response = *tensor.response;
  const Operation& operation = pending->operation;
  const Status reduced =
      tensor.data.reduce(response.dtype, reduction_of(response), scaling_of(response, set.set->size()),
                         operation.input.data, operation.output);
  pending->handle.state().output_shape = response.shape;
  table_.complete({pending}, reduced);
}

void SmallExchange::end(Set& set, Tensor& tensor, State state, bool renew) {
  const std::shared_ptr<SmallUse> use = std::exchange(tensor.open, nullptr);
  if (use == nullptr) return;
  const PendingOperationPtr pending = std::exchange(use->pending_, nullptr);
  if (state == State::kComplete) {
    finish(set, tensor, pending);
  } else {
    table_.submit(pending, renew);
    notify_();
  }
  use->is_open_.store(false);
  set.slots->ring_own();
}

void SmallExchange::seal(Set& set, Tensor& tensor, bool renew) {
  tensor.is_sealed = true;
  end(set, tensor, tensor.data.seal(), renew);
}

void SmallExchange::seal_all(Set& set) {
  for (auto& [name, tensor] : set.tensors) {
    if (!tensor.is_sealed) seal(set, tensor);
  }
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
    } else if (const auto* evicted = std::get_if<wire::Evict>(&item)) {
      evict(evicted->bit);
    }
  }
  for (auto at = sets_.begin(); at != sets_.end();) {
    const topology::ProcessSet* const now = after.find(at->first);
    const bool is_there = now != nullptr && now->context_id == at->second.set->context_id;
    if (!is_there) {
      seal_all(at->second);
      std::erase_if(by_bit_, [&](const auto& bit) { return bit.second.first == at->first; });
    }
    at = is_there ? std::next(at) : sets_.erase(at);
  }
}

// Slots are given out in the order in which all members learn of cached tensors, and stay their names'. A name that is
// cached anew was requested by all members: so all are through with the slot's generation before.
void SmallExchange::add(const wire::Response& response, const topology::ProcessSetTable& sets) {
  Set* const of = set_of(sets.share(response.process_set));
  if (of == nullptr) return;
  Set& set = *of;
  if (response.op == OpType::kJoin) set.has_joined = false;
  if (response.bit == wire::CacheBit::kNone || response.group_size > 0) return;
  const std::size_t bytes = bytes_to_exchange(response);
  if (bytes == 0) return;
  if (set.slots == nullptr) return;
  const bool is_new = !set.tensors.contains(response.name);
  if (is_new && set.next_slot == set.slots->slots()) return;
  Tensor& tensor = set.tensors[response.name];
  if (is_new) tensor.data = collectives::ExchangedTensor(set.slots, set.next_slot++);
  if (!tensor.data.renew(bytes)) return;
  tensor.response = std::make_shared<const wire::Response>(response);
  tensor.is_sealed = false;
  by_bit_[wire::value(response.bit)] = {set.set->id, response.name};
  if (set.has_joined || set.leaves) seal(set, tensor);
}

// The name keeps its slot.
void SmallExchange::evict(wire::CacheBit bit) {
  const auto of = by_bit_.find(wire::value(bit));
  if (of == by_bit_.end()) return;
  Set& set = sets_.at(of->second.first);
  seal(set, set.tensors.at(of->second.second));
  by_bit_.erase(of);
}

void SmallExchange::give_up(TimePoint then) {
  const MutexLock lock(mutex_);
  if (is_closed_) return;
  for (auto& [id, set] : sets_) {
    for (auto& [name, tensor] : set.tensors) {
      if (tensor.open != nullptr && tensor.open->since_ < then) seal(set, tensor, true);
    }
  }
}

void SmallExchange::close() {
  const MutexLock lock(mutex_);
  is_closed_ = true;
  for (auto& [id, set] : sets_) {
    for (auto& [name, tensor] : set.tensors) {
      if (tensor.open == nullptr) continue;
      if (tensor.open->has_come_.load() && tensor.data.look() == State::kComplete) {
        end(set, tensor, State::kComplete, false);
        continue;
      }
      tensor.open->pending_ = nullptr;  // the table completes it
      tensor.open->is_open_.store(false);
      tensor.open = nullptr;
    }
    if (set.slots != nullptr) set.slots->ring_own();
  }
  sets_.clear();
  by_bit_.clear();
}

SmallUse::SmallUse(std::shared_ptr<SmallExchange> exchange, std::shared_ptr<ExchangeSlots> slots,
                   const ExchangeSlots::Use& use, bool has_come, PendingOperationPtr pending)
    : exchange_(std::move(exchange)),
      slots_(std::move(slots)),
      use_(use),
      has_come_(has_come),
      pending_(std::move(pending)) {}

// A forked child does not have the memory.
bool SmallUse::look() {
  if (!is_open_.load()) return true;
  if (!owner_.same_process() || (has_come_.load() && slots_->look(use_) == State::kOpen)) return false;
  const MutexLock lock(exchange_->mutex_);
  if (pending_ == nullptr) return true;
  SmallExchange::Set& set = exchange_->sets_.at(pending_->operation.process_set);
  SmallExchange::Tensor& tensor = set.tensors.at(pending_->operation.name);
  const bool comes = !has_come_.exchange(true);
  const State state = comes ? tensor.data.come(pending_->operation.input.data) : tensor.data.look();
  if (state == State::kOpen) return false;
  if (comes) set.slots->ring_others();
  tensor.is_sealed = state == State::kSealed;
  exchange_->end(set, tensor, state, false);
  return true;
}

void SmallUse::wait(Millis limit) {
  const auto is_over = [this] { return look(); };
  const TimePoint end = SteadyClock::now() + limit;
  if (thread_spinner().spin(is_over)) return;
  while (!is_over()) {
    const TimePoint now = SteadyClock::now();
    if (now >= end) return;
    if (now - since_ > kPatience) {
      exchange_->give_up(now - kPatience);
      continue;
    }
    const auto most = std::min(end - now, since_ + kPatience - now);
    if (slots_->wait_for_bell(std::chrono::ceil<Millis>(most) + Millis(1), is_over)) return;  // by a signal
  }
}

}  // namespace hvd::engine
