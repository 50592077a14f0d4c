#include "runtime/engine/small_exchange.h"

#include <unistd.h>

#include <algorithm>

#include "runtime/base/log.h"
#include "runtime/base/spinner.h"
#include "runtime/collectives/kernels/kernels.h"
#include "runtime/engine/batch_run.h"

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

// Each member reads what all others have left, where a collective cuts a tensor into slices: so a call has one meeting
// instead of several, but reads (members - 2) times a tensor's bytes more. Where members share cores, meetings count
// for more than bytes (docs/benchmarks.md, "Tensors that callers exchange").
std::size_t SmallExchange::most_bytes(int members) {
  constexpr std::size_t kMoreBytes = std::size_t{512} << 10;
  static const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);  // reads a file
  if (members <= 2 || members > cores) return kMostBytes;
  return kMoreBytes / static_cast<std::size_t>(members - 2);
}

SmallExchange::SmallExchange(int rank, OperationTable& table, SlotsFactory factory, Engine engine)
    : rank_(rank), table_(table), factory_(std::move(factory)), engine_(std::move(engine)) {}

Result<HandlePtr> SmallExchange::add(Operation&& operation) {
  const MutexLock lock(mutex_);
  const Found found = find(operation);
  finish_last_use(found);
  bool is_taken = false;
  const auto take = [&](const PendingOperationPtr& added)
                        HVD_REQUIRES(mutex_) { return is_taken = start(added, found); };
  HVD_ASSIGN_OR_RETURN(auto handle, table_.add(std::move(operation), take));
  if (!is_taken) engine_.notify();
  return handle;
}

Result<std::vector<HandlePtr>> SmallExchange::add_group(std::vector<Operation>&& operations) {
  const MutexLock lock(mutex_);
  for (const Operation& operation : operations) {
    const auto set = sets_.find(operation.process_set);
    if (set != sets_.end() && set->second.open_uses > 0) finish_last_use(find(operation));
  }
  HVD_ASSIGN_OR_RETURN(auto handles, table_.add_group(std::move(operations)));
  engine_.notify();
  return handles;
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

SmallExchange::Found SmallExchange::find(const Operation& operation) {
  const auto set = sets_.find(operation.process_set);
  if (set == sets_.end()) return {};
  const auto tensor = set->second.tensors.find(operation.name);
  if (tensor == set->second.tensors.end()) return {};
  return {&set->second, &tensor->second};
}

void SmallExchange::finish_last_use(const Found& found) {
  if (found.tensor == nullptr || found.tensor->open == nullptr) return;
  if (found.tensor->data.look() == State::kComplete) end(*found.set, *found.tensor, State::kComplete, false);
}

// Whoever completes an operation with a callback is to be the engine or a lane: those go the ordinary way.
bool SmallExchange::can_exchange(const Set& set, const Tensor& tensor, const Operation& operation) {
  if (operation.on_done || !is_same(operation, *tensor.response)) return false;
  const std::size_t bytes = tensor.data.bytes();
  return bytes <= kMostAtOnce || (operation.is_awaited && bytes <= most_bytes(set.slots->members()));
}

bool SmallExchange::start(const PendingOperationPtr& pending, const Found& found) {
  const Operation& operation = pending->operation;
  if (is_closed_) return false;
  if (operation.op == OpType::kJoin) {
    begin_join(pending->set);
    return false;
  }
  if (found.tensor == nullptr || found.set->set->context_id != pending->set->context_id) return false;
  Set& set = *found.set;
  Tensor& tensor = *found.tensor;
  const bool fits = can_exchange(set, tensor, operation);
  if (!tensor.is_sealed && !fits) seal(set, tensor);
  if (tensor.is_sealed) {
    if (!fits || set.has_joined || !std::exchange(tensor.has_met_join, false)) return false;
    table_.submit(pending, true);
    engine_.notify();
    return true;
  }
  tensor.data.begin_use();
  const bool comes = tensor.data.bytes() <= kMostAtOnce;
  if (comes) {
    const State state = tensor.data.come(operation.input.data);
    tensor.is_sealed = state == State::kSealed;
    if (state == State::kSealed) return false;
    if (state == State::kComplete) {
      set.slots->ring_others();
      finish(set, tensor, pending);
      return true;
    }
  }
  tensor.open = std::make_shared<SmallUse>(shared_from_this(), set.slots, tensor.data.use(), comes, pending, found);
  ++set.open_uses;
  pending->handle.state().small_use = tensor.open;
  return true;
}

void SmallExchange::finish(Set& set, Tensor& tensor, const PendingOperationPtr& pending) {
  const wire::Response& response = *tensor.response;
  const Operation& operation = pending->operation;
  const Status reduced =
      tensor.data.reduce(response.dtype, reduction_of(response), scaling_of(response, set.set->size()),
                         operation.input.data, operation.output);
  if (!std::exchange(set.is_shown, true)) {  // as lanes do for what they run
    HVD_LOG(kDebug, "data path", log_field("process_set", set.set->id), log_field("op", op_type_name(response.op)),
            log_field("backend", "shm"), log_field("path", "exchanged"));
  }
  pending->handle.state().output_shape = response.shape;
  table_.complete({&pending, 1}, reduced);
  if (!reduced.is_ok()) engine_.fail(reduced.message());
}

void SmallExchange::end(Set& set, Tensor& tensor, State state, bool renew) {
  const std::shared_ptr<SmallUse> use = std::exchange(tensor.open, nullptr);
  if (use == nullptr) return;
  --set.open_uses;
  const PendingOperationPtr pending = std::exchange(use->pending_, nullptr);
  if (state == State::kComplete) {
    finish(set, tensor, pending);
  } else {
    table_.submit(pending, renew);
    engine_.notify();
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

void SmallExchange::give_up(TimePoint then) {
  const MutexLock lock(mutex_);
  if (is_closed_) return;
  for (auto& [id, set] : sets_) {
    for (auto& [name, tensor] : set.tensors) {
      if (tensor.open != nullptr && tensor.open->since_ < then) seal(set, tensor, true);
    }
  }
}

// Sealed, so that who comes to a use later than this concludes what this rank does.
void SmallExchange::close() {
  const MutexLock lock(mutex_);
  is_closed_ = true;
  for (auto& [id, set] : sets_) {
    for (auto& [name, tensor] : set.tensors) {
      if (tensor.is_sealed) continue;
      if (tensor.data.seal() == State::kComplete) end(set, tensor, State::kComplete, false);
      if (tensor.open == nullptr) continue;
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
                   const ExchangeSlots::Use& use, bool has_come, PendingOperationPtr pending,
                   const SmallExchange::Found& of)
    : exchange_(std::move(exchange)),
      slots_(std::move(slots)),
      use_(use),
      has_come_(has_come),
      since_(pending->submitted),
      pending_(std::move(pending)),
      of_(of) {}

// A forked child does not have the memory.
bool SmallUse::look() {
  if (!is_open_.load()) return true;
  if (!owner_.same_process() || (has_come_.load() && slots_->look(use_) == State::kOpen)) return false;
  const MutexLock lock(exchange_->mutex_);
  if (pending_ == nullptr) return true;
  SmallExchange::Set& set = *of_.set;
  SmallExchange::Tensor& tensor = *of_.tensor;
  const bool comes = !has_come_.exchange(true);
  const State state = comes ? tensor.data.come(pending_->operation.input.data) : tensor.data.look();
  if (state == State::kOpen) return false;
  if (comes) set.slots->ring_others();
  tensor.is_sealed = state == State::kSealed;
  exchange_->end(set, tensor, state, false);
  return true;
}

void SmallUse::wait(Millis limit) {
  if (!owner_.same_process()) return;
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
