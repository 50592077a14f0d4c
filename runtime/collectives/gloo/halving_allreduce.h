#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include "horovod/types.h"
#include "runtime/base/deadline.h"

namespace hvd::collectives {

// Allreduce for payloads that many ranks have little of each: recursive halving, which leaves each rank with a reduced
// part, then doubling, which gathers them. As many bytes as a ring in 2 log2 N hops instead of 2(N-1); a ring, which
// overlaps its hops, is better where bytes count more than hops. Where N is no power of two, pairs fold before and
// after, for twice the bytes. Every element is reduced on one rank per hop, so all ranks get the same bits. Owned by a
// GlooBackend, used by one thread; keeps its memory between calls. Throws what Gloo throws.
class HalvingAllreduce {
 public:
  static constexpr bool is_better_than_ring(int size, std::size_t bytes) {
    const auto ranks = static_cast<std::size_t>(size);
    return size >= 4 && bytes <= ranks * (std::has_single_bit(ranks) ? kBytesPerRank : kBytesPerFoldedRank);
  }

  // Requires: context->size > 1.
  HalvingAllreduce(std::shared_ptr<gloo::Context> context, Millis wait_timeout)
      : context_(std::move(context)), wait_timeout_(wait_timeout) {}

  // In place on `data`. `tag` differs between the calls in a row on one context. Requires: count > 0.
  void run(void* data, std::int64_t count, DataType dtype, ReduceOp op, std::uint32_t tag);

 private:
  static constexpr std::size_t kBytesPerRank = std::size_t{64} << 10;
  static constexpr std::size_t kBytesPerFoldedRank = std::size_t{8} << 10;
  class Run;
  std::shared_ptr<gloo::Context> context_;
  Millis wait_timeout_;
  std::vector<std::uint8_t> memory_;  // what comes in before it is reduced
  std::unique_ptr<gloo::transport::UnboundBuffer> scratch_;
};

}  // namespace hvd::collectives
