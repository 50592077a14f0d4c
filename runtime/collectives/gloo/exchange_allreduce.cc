#include "runtime/collectives/gloo/exchange_allreduce.h"

#include <bit>
#include <cstring>
#include <utility>

#include <gloo/types.h>

#include "runtime/base/failpoint.h"
#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {
namespace {

constexpr std::uint8_t kExchangeSlotPrefix = 0x48;  // Gloo's own collectives use 1 to 8

}  // namespace

struct ExchangeAllreduce::Call {
  void* data;
  std::int64_t count;
  std::size_t bytes;
  DataType dtype;
  ReduceOp op;
  gloo::Slot slot;  // + step

  // data = op(left, right)
  void reduce(const void* left, const void* right) const { kernels::reduce(dtype, op, data, left, right, count); }
};

ExchangeAllreduce::ExchangeAllreduce(std::shared_ptr<gloo::Context> context, Millis wait_timeout, std::size_t largest)
    : context_(std::move(context)), wait_timeout_(wait_timeout) {
  const int size = context_->size;
  const bool is_direct = size <= kDirectRanks;
  const std::size_t block_bytes = largest != 0 ? largest : max_bytes(size);
  const auto ranks = static_cast<std::size_t>(size);
  // Of the doubling: as many blocks as there are steps, the fold's among them.
  in_.resize(is_direct ? ranks : static_cast<std::size_t>(std::bit_width(ranks)));
  memory_.resize(block_bytes * (in_.size() + 1));
  std::uint8_t* block = memory_.data();
  out_ = context_->createUnboundBuffer(block, block_bytes);
  for (std::size_t i = 0; i < in_.size(); ++i) {
    if (is_direct && i == static_cast<std::size_t>(context_->rank)) continue;
    block += block_bytes;
    in_[i] = context_->createUnboundBuffer(block, block_bytes);
  }
}

void ExchangeAllreduce::run(void* data, std::int64_t count, DataType dtype, ReduceOp op, std::uint32_t tag) {
  const Call call{data,  count, static_cast<std::size_t>(count) * element_size(dtype),
                  dtype, op,    gloo::Slot::build(kExchangeSlotPrefix, tag)};
  if (context_->size <= kDirectRanks) {
    direct(call);
  } else {
    recursive_doubling(call);
  }
}

void ExchangeAllreduce::direct(const Call& call) {
  const int size = context_->size;
  const int rank = context_->rank;
  std::memcpy(out_->ptr, call.data, call.bytes);
  for (int step = 1; step < size; ++step) {
    const int from = (rank + size - step) % size;
    in_[static_cast<std::size_t>(from)]->recv(from, call.slot, 0, call.bytes);
  }
  for (int step = 1; step < size; ++step) out_->send((rank + step) % size, call.slot, 0, call.bytes);

  HVD_FAILPOINT("exchange.step");
  const void* left = rank == 0 ? out_->ptr : in_[0]->ptr;
  if (rank != 0) in_[0]->waitRecv(wait_timeout_);
  for (int r = 1; r < size; ++r) {
    const auto& incoming = in_[static_cast<std::size_t>(r)];
    if (r != rank) incoming->waitRecv(wait_timeout_);
    call.reduce(left, r == rank ? out_->ptr : incoming->ptr);
    left = call.data;
  }
  for (int step = 1; step < size; ++step) out_->waitSend(wait_timeout_);
}

// The first 2 * folded ranks form pairs whose odd member takes part for both; the participants are numbered 0..power-1
// in rank order, so that "lower number" still means "lower ranks" and the order of the operands is the same on both
// sides of every exchange.
void ExchangeAllreduce::recursive_doubling(const Call& call) {
  const int size = context_->size;
  const int rank = context_->rank;
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const int folded = size - power;
  const bool in_fold = rank < 2 * folded;
  constexpr std::uint8_t kFoldStep = 100;
  constexpr std::uint8_t kUnfoldStep = 101;
  if (in_fold && rank % 2 == 0) {
    in_[0]->recv(rank + 1, call.slot + kUnfoldStep, 0, call.bytes);
    std::memcpy(out_->ptr, call.data, call.bytes);
    send(rank + 1, call.slot + kFoldStep, call.bytes);
    in_[0]->waitRecv(wait_timeout_);
    std::memcpy(call.data, in_[0]->ptr, call.bytes);
    return;
  }
  // All receives first: who sends more than rides along unasked need not ask.
  const int number = in_fold ? rank / 2 : rank - folded;
  const auto partner = [&](int distance) {
    const int other = number ^ distance;
    return other < folded ? 2 * other + 1 : other + folded;
  };
  if (in_fold) in_.back()->recv(rank - 1, call.slot + kFoldStep, 0, call.bytes);
  std::uint8_t step = 0;
  for (int distance = 1; distance < power; distance *= 2, ++step) {
    in_[step]->recv(partner(distance), call.slot + step, 0, call.bytes);
  }
  if (in_fold) {
    in_.back()->waitRecv(wait_timeout_);
    call.reduce(in_.back()->ptr, call.data);
  }
  step = 0;
  for (int distance = 1; distance < power; distance *= 2, ++step) {
    std::memcpy(out_->ptr, call.data, call.bytes);
    send(partner(distance), call.slot + step, call.bytes);
    in_[step]->waitRecv(wait_timeout_);
    const void* const incoming = in_[step]->ptr;
    const bool incoming_is_left = (number & distance) != 0;
    call.reduce(incoming_is_left ? incoming : call.data, incoming_is_left ? call.data : incoming);
  }
  if (in_fold) {
    std::memcpy(out_->ptr, call.data, call.bytes);
    send(rank - 1, call.slot + kUnfoldStep, call.bytes);
  }
}

void ExchangeAllreduce::send(int to, std::uint64_t slot, std::size_t bytes) {
  out_->send(to, slot, 0, bytes);
  out_->waitSend(wait_timeout_);
}

}  // namespace hvd::collectives
