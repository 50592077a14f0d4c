#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include "runtime/base/deadline.h"

namespace hvd::collectives {

// Allreduce as a binary tree over ranks: neighbours are combined, then pairs of them, and so on. Which ranks are
// combined with which does not depend on where an element is in the memory, so an elementwise reduction gives the same
// bits however tensors are fused. Either everything is exchanged at every level (few hops), or by vector halving and
// distance doubling, where each rank combines a piece (few bytes). When the number of ranks is no power of two, the
// first 2 (N - P) ranks, P the largest power below N, are combined in neighbouring pairs first. Owned by a GlooBackend,
// used by one thread; keeps its memory between calls. Throws what Gloo throws.
class TreeAllreduce {
 public:
  // Elements of the payload.
  struct Range {
    std::int64_t begin;
    std::int64_t end;
    std::int64_t count() const { return end - begin; }
  };

  // What becomes of two operands. A value of one call.
  class Combiner {
   public:
    // Adds up numbers that all ranks with a piece of this level have, in place; all get the same bits.
    using AddUp = std::function<void(std::span<double>)>;
    virtual ~Combiner() = default;
    // out = left with right, which hold the elements of `range`; `out` is one of the two. `left` is that of lower
    // ranks.
    virtual void combine(Range range, const std::uint8_t* left, const std::uint8_t* right, std::uint8_t* out,
                         const AddUp& add_up) = 0;
  };

  enum class Exchange { kWhole, kHalves };
  struct Call {
    std::uint8_t* data;   // in place
    std::int64_t count;   // elements
    std::size_t element;  // bytes
    std::uint32_t tag;    // differs between the calls in a row on one context
    Exchange exchange = Exchange::kHalves;
  };

  TreeAllreduce(std::shared_ptr<gloo::Context> context, Millis wait_timeout)
      : context_(std::move(context)), wait_timeout_(wait_timeout) {}

  // Over `ranks`, of which this rank is one; they all get the same bits. Requires: all of them make the same call.
  void run(const Call& call, const std::vector<int>& ranks, Combiner& combiner);

  // For a caller's own steps before and after, with the same tag: whole payloads. A step between two ranks may be used
  // in one direction once.
  void send(const Call& call, int to);
  void receive(const Call& call, int from, std::uint8_t* into);
  // At least `bytes` of memory to receive into; run() uses the same.
  std::uint8_t* scratch(std::size_t bytes);

 private:
  class Run;
  std::shared_ptr<gloo::Context> context_;
  Millis wait_timeout_;
  std::unique_ptr<std::uint8_t[]> scratch_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace hvd::collectives
