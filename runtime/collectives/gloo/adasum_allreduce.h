#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include "horovod/types.h"
#include "runtime/base/deadline.h"

namespace hvd::collectives {

// Adasum over any number of ranks (contract 08 §8.9; docs/design/adasum.md): a binary tree of pairwise combinations, each
// with coefficients per tensor. Small payloads are exchanged whole (recursive doubling), large ones by vector halving and
// distance doubling, where each rank combines a piece and the products of the pieces are added up in double.
//  - When the number of ranks is no power of two, the first 2 (N - P) ranks, P the largest power below N, are combined in
//    neighbouring pairs first; the P results go through the tree.
//  - Hierarchical: the ranks of each host, `local_size` in a row, are averaged; Adasum runs between the hosts.
// All ranks get the same bits. Owned by a GlooBackend, used by one thread; keeps its memory between calls. Throws what
// Gloo throws.
class AdasumAllreduce {
 public:
  // Up to here every rank combines all elements by itself: fewer hops.
  static constexpr std::size_t kWholeBytes = 64 * 1024;

  // Requires: context->size > 1. `local_size` 1: not hierarchical; else it divides context->size.
  AdasumAllreduce(std::shared_ptr<gloo::Context> context, Millis wait_timeout, int local_size);

  // In place on `data`, which holds tensors of these numbers of elements. `tag` differs between the calls in a row on one
  // context. Requires: kernels::can_adasum(dtype).
  void run(void* data, std::span<const std::int64_t> tensors, DataType dtype, std::uint32_t tag);

 private:
  class Run;
  // At least `bytes` of memory to receive into.
  std::uint8_t* scratch(std::size_t bytes);

  std::shared_ptr<gloo::Context> context_;
  Millis wait_timeout_;
  int local_size_;
  std::unique_ptr<std::uint8_t[]> scratch_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace hvd::collectives
