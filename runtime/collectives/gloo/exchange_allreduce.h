#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include "horovod/types.h"
#include "runtime/base/deadline.h"

namespace hvd::collectives {

// Allreduce for payloads so small that the number of hops is all that counts. Gloo's ring takes 2(N-1) hops one after
// another; this takes one for up to kDirectRanks ranks (everybody sends to everybody) and about log2 N beyond
// (recursive doubling, with a fold before and after when N is no power of two). Reductions run in rank order, so all
// ranks get the same bits. Owned by a GlooBackend, used by one thread; keeps its memory between calls. Throws what Gloo
// throws.
class ExchangeAllreduce {
 public:
  static constexpr int kDirectRanks = 4;
  // Up to here it is the fastest, measured between hosts. With two ranks it moves no more bytes than the others.
  static constexpr std::size_t max_bytes(int size) { return std::size_t{1024} * (size == 2 ? 128 : 64); }

  // Requires: context->size > 1. `largest`: bytes of a call; 0: max_bytes(size).
  ExchangeAllreduce(std::shared_ptr<gloo::Context> context, Millis wait_timeout, std::size_t largest = 0);

  // In place on `data`. `tag` differs between the calls in a row on one context. Requires: count * element size is in
  // 1..largest.
  void run(void* data, std::int64_t count, DataType dtype, ReduceOp op, std::uint32_t tag);

 private:
  struct Call;
  void direct(const Call& call);
  void recursive_doubling(const Call& call);
  void send(int to, std::uint64_t slot, std::size_t bytes);

  std::shared_ptr<gloo::Context> context_;
  Millis wait_timeout_;
  std::vector<std::uint8_t> memory_;  // the outgoing block, then the incoming ones
  std::unique_ptr<gloo::transport::UnboundBuffer> out_;
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> in_;  // direct: by rank (none for our own); else by step
};

}  // namespace hvd::collectives
