// One use of what is exchanged: the elements of a tensor, or of a group, and whoever waits for them or is called.
#include <algorithm>
#include <cstring>
#include <deque>
#include <iterator>
#include <string_view>
#include <unordered_map>

#include "runtime/base/plain_floats.h"
#include "runtime/base/spinner.h"
#include "runtime/engine/batch_run.h"
#include "runtime/engine/small_exchange.h"

namespace hvd::engine {

using collectives::ExchangeSlots;
using State = ExchangeSlots::State;

namespace {

// Whether the cached tensor is what the operation asks for.
bool is_same_tensor(const Operation& operation, const wire::Response& cached) {
  return operation.op == cached.op && operation.input.dtype == cached.dtype && operation.input.device == kCpuDevice &&
         operation.reduce_op == cached.reduce_op && operation.prescale == cached.prescale &&
         operation.postscale == cached.postscale && operation.input.shape == cached.shape &&
         operation.name == cached.name;
}

}  // namespace

bool SmallExchange::is_same(Tensor& tensor, Pending pending) {
  if (pending.size() != tensor.responses.size()) return false;
  if (tensor.places.empty()) {
    std::unordered_map<std::string_view, std::size_t> places;
    for (std::size_t i = 0; i < pending.size(); ++i) places.emplace(pending[i]->operation.name, i);
    for (const auto& response : tensor.responses) {
      const auto at = places.find(response->name);
      tensor.places.push_back(at == places.end() ? 0 : at->second);
    }
  }
  for (std::size_t i = 0; i < pending.size(); ++i) {
    if (!is_same_tensor(pending[tensor.places[i]]->operation, *tensor.responses[i])) return false;
  }
  return true;
}

State SmallExchange::come(Tensor& tensor, Pending pending) {
  if (pending.size() == 1) return tensor.data.come(pending.front()->operation.input.data);
  tensor.group.resize(tensor.data.bytes());
  std::byte* to = tensor.group.data();
  for (const std::size_t place : tensor.places) {
    const TensorRef& input = pending[place]->operation.input;
    if (const std::size_t bytes = input.byte_size(); bytes > 0) {
      std::memcpy(to, input.data, bytes);
      to += bytes;
    }
  }
  return tensor.data.come(tensor.group.data());
}

Status SmallExchange::reduce(const Set& set, Tensor& tensor, Pending pending) {
  const PlainFloats floats;  // on a thread of the user's
  const wire::Response& response = *tensor.responses.front();
  const Operation& first = pending.front()->operation;
  const bool is_group = pending.size() > 1;
  std::byte* const group = tensor.group.data();
  HVD_RETURN_IF_ERROR(tensor.data.reduce(response.dtype, reduction_of(response), scaling_of(response, set.set->size()),
                                         is_group ? group : first.input.data, is_group ? group : first.output));
  const std::byte* from = group;
  for (std::size_t i = 0; is_group && i < pending.size(); ++i) {
    const Operation& operation = pending[tensor.places[i]]->operation;
    if (const std::size_t bytes = operation.input.byte_size(); bytes > 0) {
      std::memcpy(operation.output, from, bytes);
      from += bytes;
    }
  }
  return Status::ok();
}

SmallExchange::Locked::Locked(SmallExchange& exchange) : exchange_(exchange) { exchange_.mutex_.lock(); }

thread_local std::deque<SmallExchange::Ended>* SmallExchange::Locked::calling_ = nullptr;

SmallExchange::Locked::~Locked() {
  std::vector<Ended> ended = std::exchange(exchange_.ended_, {});
  exchange_.mutex_.unlock();
  if (ended.empty()) return;
  if (is_calling()) {
    std::ranges::move(ended, std::back_inserter(*calling_));
    return;
  }
  std::deque<Ended> own(std::make_move_iterator(ended.begin()), std::make_move_iterator(ended.end()));
  calling_ = &own;
  while (!own.empty()) {
    const Ended one = std::move(own.front());
    own.pop_front();
    one.on_done(one.operation->handle);
  }
  calling_ = nullptr;
}

SmallUse::SmallUse(std::shared_ptr<SmallExchange> exchange, std::shared_ptr<ExchangeSlots> slots,
                   const ExchangeSlots::Use& use, bool has_come, SmallExchange::Pending pending,
                   const SmallExchange::Found& of)
    : exchange_(std::move(exchange)),
      slots_(std::move(slots)),
      use_(use),
      has_come_(has_come),
      since_(pending.front()->submitted),
      pending_(OneOrMany<PendingOperationPtr>(pending)),
      of_(of) {}

// A forked child does not have the memory.
bool SmallUse::look() {
  if (!is_open_.load()) return true;
  if (!owner_.same_process() || (has_come_.load() && slots_->look(use_) == State::kOpen)) return false;
  const SmallExchange::Locked lock(*exchange_);
  if (!pending_) return true;
  SmallExchange::Set& set = *of_.set;
  SmallExchange::Tensor& tensor = *of_.tensor;
  const bool comes = !has_come_.exchange(true);
  const State state = comes ? SmallExchange::come(tensor, pending_->all()) : tensor.data.look();
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
