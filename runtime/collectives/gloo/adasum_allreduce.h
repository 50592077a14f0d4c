#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "horovod/types.h"
#include "runtime/collectives/gloo/tree_allreduce.h"

namespace hvd::collectives {

// Adasum over any number of ranks (docs/design/adasum.md): the tree of TreeAllreduce, whose pairs are
// combined with coefficients of each tensor. Where ranks hold pieces of a tensor, the products of the pieces are added
// up in double. Hierarchical: the ranks of each host, `local_size` in a row, are averaged; the tree runs between the
// hosts. Belongs to a GlooBackend, used by one thread. Throws what Gloo throws.
class AdasumAllreduce {
 public:
  // Up to here every rank combines all elements by itself: fewer hops. With two ranks it moves no more bytes, either.
  static constexpr std::size_t kWholeBytes = std::size_t{64} * 1024;

  struct Options {
    int size = 1;
    int rank = 0;
    int local_size = 1;         // 1: not hierarchical; else it divides `size`
    bool always_whole = false;  // the result does not depend on what is fused with what
  };

  AdasumAllreduce(TreeAllreduce& tree, const Options& options) : tree_(tree), options_(options) {}

  // In place on `data`, which holds tensors of these numbers of elements. `tag` differs between the calls in a row on
  // one context. Requires: kernels::can_adasum(dtype).
  void run(void* data, std::span<const std::int64_t> tensors, DataType dtype, std::uint32_t tag);

 private:
  void average_host(const TreeAllreduce::Call& call, DataType dtype);

  TreeAllreduce& tree_;
  const Options options_;
};

}  // namespace hvd::collectives
