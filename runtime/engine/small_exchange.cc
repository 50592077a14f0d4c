#include "runtime/engine/small_exchange.h"

#include <algorithm>
#include <span>

#include "runtime/base/spinner.h"
#include "runtime/engine/batch_run.h"
#include "runtime/negotiation/small_tensor.h"

namespace hvd::engine {

using collectives::ExchangeSlots;
using State = ExchangeSlots::State;

namespace {

// Whether the cached tensor is what the operation asks for.
bool is_same(const Operation& operation, const wire::Response& cached) {
  return operation.op == cached.op && operation.input.dtype == cached.dtype && operation.input.device == kCpuDevice &&
         operation.reduce_op == cached.reduce_op && operation.prescale == cached.prescale &&
         operation.postscale == cached.postscale && operation.input.shape == cached.shape;
}

}  // namespace

SmallExchange::SmallExchange(int rank, OperationTable& table, SlotsFactory factory, std::function<void()> notify)
    : rank_(rank), table_(table), factory_(std::move(factory)), notify_(std::move(notify)) {
  static_assert(ExchangeSlots::kBytes == wire::kMaxElementsBytes);
}

// Whoever completes an operation with a callback is to be the engine or a lane: those go the ordinary way.
bool SmallExchange::start(const PendingOperationPtr& pending) {
  const Operation& operation = pending->operation;
  const MutexLock lock(mutex_);
  const auto at = sets_.find(operation.process_set);
  if (is_closed_ || at == sets_.end() || at->second.set->context_id != pending->set->context_id) return false;
  Set& set = at->second;
  if (operation.op == OpType::kJoin) {
    set.has_joined = true;
    seal_all(set);
    return false;
  }
  const auto found = set.tensors.find(operation.name);
  if (found == set.tensors.end() || found->second.is_sealed) return false;
  Tensor& tensor = found->second;
  if (operation.on_done || !is_same(operation, *tensor.response)) {
    seal(set, tensor);
    return false;
  }
  const std::string elements = negotiation::read_elements(*tensor.response, operation.input.data);
  const std::uint64_t use = ++tensor.uses;
  const State state = set.slots->come(tensor.slot, use, std::as_bytes(std::span(elements)));
  tensor.is_sealed = state == State::kSealed;
  if (state == State::kSealed) return false;
  if (state == State::kComplete) {
    set.slots->ring_others();
    finish(set, tensor, pending);
    return true;
  }
  tensor.open = std::make_shared<SmallUse>(shared_from_this(), set.slots, tensor.slot, use, pending);
  pending->handle.state().small_use = tensor.open;
  return true;
}

// Reduced in the order of the members, as in other calls in shared memory.
void SmallExchange::finish(const Set& set, const Tensor& tensor, const PendingOperationPtr& pending) {
  const wire::Response& response = *tensor.response;
  const negotiation::SmallTensor small(response);
  const auto elements_of = [&](int member) {
    const std::byte* const left = set.slots->elements(tensor.slot, tensor.uses, member);
    return std::string(reinterpret_cast<const char*>(left), small.bytes);
  };
  std::string sum = elements_of(0);
  for (int member = 1; member < set.slots->members(); ++member) small.reduce(sum, elements_of(member));
  collectives::host_memory().scale_result(response.dtype, pending->operation.output, sum.data(),
                                          num_elements(response.shape), scaling_of(response, set.slots->members()));
  pending->handle.state().output_shape = response.shape;
  table_.complete({pending}, Status::ok());
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
  const State state = set.slots->seal(tensor.slot, tensor.uses);
  set.slots->ring_others();
  end(set, tensor, state, renew);
}

void SmallExchange::seal_all(Set& set) {
  for (auto& [name, tensor] : set.tensors) {
    if (!tensor.is_sealed) seal(set, tensor);
  }
}

void SmallExchange::leave(std::int32_t process_set) {
  const MutexLock lock(mutex_);
  const auto at = sets_.find(process_set);
  if (is_closed_ || at == sets_.end()) return;
  at->second.leaves = true;
  seal_all(at->second);
}

void SmallExchange::learn(const wire::Decision& decision, const topology::ProcessSetTable& sets) {
  const MutexLock lock(mutex_);
  if (is_closed_) return;
  for (const wire::DecisionItem& item : decision.items) {
    if (const auto* response = std::get_if<wire::Response>(&item)) {
      add(*response, sets);
    } else if (const auto* evicted = std::get_if<wire::Evict>(&item)) {
      evict(evicted->bit);
    }
  }
  for (auto at = sets_.begin(); at != sets_.end();) {
    const topology::ProcessSet* const now = sets.find(at->first);
    const bool is_there = now != nullptr && now->context_id == at->second.set->context_id;
    if (!is_there) {
      seal_all(at->second);
      std::erase_if(by_bit_, [&](const auto& bit) { return bit.second.first == at->first; });
    }
    at = is_there ? std::next(at) : sets_.erase(at);
  }
}

// Slots are given out in the order in which all members learn of cached tensors, and never again: an eviction and what
// comes after it reach them at different times.
void SmallExchange::add(const wire::Response& response, const topology::ProcessSetTable& sets) {
  const topology::ProcessSetPtr of = sets.share(response.process_set);
  if (of == nullptr || of->size() < 2 || !of->contains(rank_)) return;
  if (response.op == OpType::kJoin) {
    const auto at = sets_.find(of->id);
    if (at != sets_.end()) at->second.has_joined = false;
    return;
  }
  if (response.bit == wire::CacheBit::kNone || response.group_size > 0) return;
  if (negotiation::elements_bytes(response) == 0) return;
  auto [at, is_new] = sets_.try_emplace(of->id);
  Set& set = at->second;
  if (is_new) {
    set.set = of;
    set.slots = factory_(*of);
  }
  if (set.slots == nullptr || set.next_slot == set.slots->slots()) return;
  Tensor& tensor = set.tensors[response.name];
  tensor = Tensor{};
  tensor.response = std::make_shared<const wire::Response>(response);
  tensor.slot = set.next_slot++;
  by_bit_[wire::value(response.bit)] = {of->id, response.name};
  if (set.has_joined || set.leaves) seal(set, tensor);
}

void SmallExchange::evict(wire::CacheBit bit) {
  const auto of = by_bit_.find(wire::value(bit));
  if (of == by_bit_.end()) return;
  const auto set = sets_.find(of->second.first);
  const auto tensor = set->second.tensors.find(of->second.second);
  seal(set->second, tensor->second);
  set->second.tensors.erase(tensor);
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
      if (set.slots->look(tensor.slot, tensor.uses) == State::kComplete) {
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

SmallUse::SmallUse(std::shared_ptr<SmallExchange> exchange, std::shared_ptr<ExchangeSlots> slots, std::size_t slot,
                   std::uint64_t number, PendingOperationPtr pending)
    : exchange_(std::move(exchange)),
      slots_(std::move(slots)),
      slot_(slot),
      number_(number),
      pending_(std::move(pending)) {}

// A forked child does not have the memory.
bool SmallUse::look() {
  if (!is_open_.load()) return true;
  if (!owner_.same_process() || slots_->look(slot_, number_) == State::kOpen) return false;
  const MutexLock lock(exchange_->mutex_);
  if (pending_ == nullptr) return true;
  SmallExchange::Set& set = exchange_->sets_.at(pending_->operation.process_set);
  SmallExchange::Tensor& tensor = set.tensors.at(pending_->operation.name);
  const State state = slots_->look(slot_, number_);
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
