#include "runtime/engine/small_exchange.h"

#include <unistd.h>

#include <algorithm>

#include "runtime/base/log.h"

namespace hvd::engine {

using collectives::ExchangeSlots;
using State = ExchangeSlots::State;

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
  std::optional<ExchangeWaiter::Wait> wait;
  HandlePtr handle;
  {
    const Locked lock(*this);
    const Found found = find(operation);
    finish_last_use(found);
    finish_last_uses_of_groups(operation);
    bool is_taken = false;
    const auto take = [&](Pending added) HVD_REQUIRES(mutex_) { return is_taken = start(added, found, wait); };
    HVD_ASSIGN_OR_RETURN(handle, table_.add(std::move(operation), take));
    if (!is_taken) engine_.notify();
  }
  if (wait) waiter_.begin(*wait);
  return handle;
}

Result<std::vector<HandlePtr>> SmallExchange::add_group(std::vector<Operation>&& operations) {
  std::optional<ExchangeWaiter::Wait> wait;
  std::vector<HandlePtr> handles;
  {
    const Locked lock(*this);
    const Found found = find_group(operations);
    finish_last_use(found);
    if (!operations.empty()) finish_last_uses_of_groups(operations.front());
    for (const Operation& operation : operations) {
      const auto set = sets_.find(operation.process_set);
      if (set != sets_.end() && set->second.open_uses > 0) finish_last_use(find(operation));
    }
    bool is_taken = false;
    const auto take = [&](Pending added) HVD_REQUIRES(mutex_) { return is_taken = start(added, found, wait); };
    HVD_ASSIGN_OR_RETURN(handles, table_.add_group(std::move(operations), take));
    if (!is_taken) engine_.notify();
  }
  if (wait) waiter_.begin(*wait);
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

SmallExchange::Found SmallExchange::find_group(std::span<const Operation> operations) {
  if (operations.empty()) return {};
  if (operations.size() == 1) return find(operations.front());
  const auto set = sets_.find(operations.front().process_set);
  if (set == sets_.end() || set->second.groups.empty()) return {};
  wire::GroupKey key;
  for (const Operation& operation : operations) key.add(operation.name);
  const auto group = set->second.groups.find(key.value());
  if (group == set->second.groups.end()) return {};
  return {&set->second, &group->second};
}

void SmallExchange::finish_last_use(const Found& found) {
  if (found.tensor == nullptr || found.tensor->open == nullptr) return;
  if (found.tensor->data.look() == State::kComplete) end(*found.set, *found.tensor, State::kComplete, false);
}

void SmallExchange::finish_last_uses_of_groups(const Operation& operation) {
  const auto set = sets_.find(operation.process_set);
  if (set == sets_.end() || set->second.open_groups == 0) return;
  for (auto& [key, group] : set->second.groups) finish_last_use({&set->second, &group});
}

bool SmallExchange::can_exchange(const Set& set, Tensor& tensor, Pending pending) {
  if (!is_same(tensor, pending)) return false;
  const std::size_t bytes = tensor.data.bytes();
  return bytes <= kMostAtOnce || (pending.front()->operation.is_awaited && bytes <= most_bytes(set.slots->members()));
}

bool SmallExchange::start(Pending pending, const Found& found, std::optional<ExchangeWaiter::Wait>& wait) {
  if (!start(pending, found)) return false;
  const bool has_callback =
      std::ranges::any_of(pending, [](const auto& each) { return each->operation.on_done != nullptr; });
  if (has_callback && found.tensor->open != nullptr) {
    wait = {found.tensor->open, found.set->open_uses == 1 && !Locked::is_calling()};
  }
  return true;
}

bool SmallExchange::start(Pending pending, const Found& found) {
  if (is_closed_) return false;
  const PendingOperation& first = *pending.front();
  if (first.operation.op == OpType::kJoin) {
    begin_join(first.set);
    return false;
  }
  if (found.tensor == nullptr || found.set->set->context_id != first.set->context_id) return false;
  Set& set = *found.set;
  Tensor& tensor = *found.tensor;
  const bool fits = can_exchange(set, tensor, pending);
  const bool is_watched = table_.is_watched();
  if (!tensor.is_sealed && (!fits || is_watched)) {
    tensor.renews = tensor.renews || fits;
    seal(set, tensor);
  }
  if (tensor.is_sealed) {
    if (!fits || is_watched || set.has_joined || !std::exchange(tensor.renews, false)) return false;
    table_.submit(pending, true);
    engine_.notify();
    return true;
  }
  tensor.data.begin_use();
  const bool comes = tensor.data.bytes() <= kMostAtOnce;
  if (comes) {
    const State state = come(tensor, pending);
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
  if (pending.size() > 1) ++set.open_groups;
  for (const PendingOperationPtr& each : pending) each->handle.state().small_use = tensor.open;
  return true;
}

void SmallExchange::finish(Set& set, Tensor& tensor, Pending pending) {
  const Status reduced = reduce(set, tensor, pending);
  if (!std::exchange(set.is_shown, true)) {  // as lanes do for what they run
    HVD_LOG(kDebug, "data path", log_field("process_set", set.set->id),
            log_field("op", op_type_name(tensor.responses.front()->op)), log_field("backend", "shm"),
            log_field("path", "exchanged"));
  }
  for (const PendingOperationPtr& each : pending) {
    each->handle.state().output_shape = each->operation.input.shape;
    if (each->operation.on_done) ended_.push_back({each, std::exchange(each->operation.on_done, nullptr)});
  }
  table_.complete(pending, reduced);
  if (!reduced.is_ok()) engine_.fail(reduced.message());
}

void SmallExchange::end(Set& set, Tensor& tensor, State state, bool renew) {
  const std::shared_ptr<SmallUse> use = std::exchange(tensor.open, nullptr);
  if (use == nullptr) return;
  --set.open_uses;
  const auto ended = std::exchange(use->pending_, std::nullopt);
  const Pending pending = ended->all();
  if (pending.size() > 1) --set.open_groups;
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
  tensor.group = {};
}

void SmallExchange::seal_all(Set& set) {
  for_each_tensor(set, [&](Tensor& tensor) HVD_REQUIRES(mutex_) {
    if (!tensor.is_sealed) seal(set, tensor);
  });
}

void SmallExchange::give_up(TimePoint then) {
  const Locked lock(*this);
  if (is_closed_) return;
  for (auto& [id, set] : sets_) {
    Set& of = set;
    for_each_tensor(of, [&](Tensor& tensor) HVD_REQUIRES(mutex_) {
      if (tensor.open == nullptr) return;
      const bool is_sealed = tensor.data.look() == State::kSealed;  // by another member
      if (!is_sealed && tensor.open->since_ >= then) return;
      finish_last_use({&of, &tensor});  // that nobody has looked at
      if (tensor.open != nullptr) seal(of, tensor, !is_sealed);
    });
  }
}

// Sealed, so that who comes to a use later than this concludes what this rank does.
void SmallExchange::close() {
  close_all();
  waiter_.stop();
}

void SmallExchange::close_all() {
  const Locked lock(*this);
  is_closed_ = true;
  for (auto& [id, set] : sets_) {
    Set& of = set;
    for_each_tensor(of, [&](Tensor& tensor) HVD_REQUIRES(mutex_) {
      if (tensor.is_sealed) return;
      if (tensor.data.seal() == State::kComplete) end(of, tensor, State::kComplete, false);
      if (tensor.open == nullptr) return;
      tensor.open->pending_.reset();  // the table completes it
      tensor.open->is_open_.store(false);
      tensor.open = nullptr;
    });
    if (set.slots != nullptr) set.slots->ring_own();
  }
  sets_.clear();
  by_bit_.clear();
}

}  // namespace hvd::engine
