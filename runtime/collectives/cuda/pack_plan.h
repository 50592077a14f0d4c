#pragma once

#include <cstddef>
#include <vector>

#include "runtime/collectives/backend.h"

namespace hvd::collectives::cuda {

// How the tensors of a call lie side by side in one piece of staging memory, for a collective that works there. Pure.
struct PackPlan {
  // Between a tensor, or a part of one, and the staging memory. Null in `in`: zeros. What is null in `out` is left out.
  struct Copy {
    std::size_t offset = 0;
    void* tensor = nullptr;
    std::size_t bytes = 0;
  };
  std::vector<Copy> in;
  std::vector<Copy> out;
  std::size_t bytes = 0;

  // The same in pieces of about `most` bytes, in the same memory: a collective is all of theirs, one after the other.
  // Where ranks have parts, each piece has a slice of every part, and what the whole call finds elsewhere. All members
  // make as many. In one piece where its elements do not stand for themselves. Requires: `most` is a multiple of every
  // element.
  std::vector<PackPlan> pieces(std::size_t most) const;

  // The call on staging memory at `base`, which is aligned for every type.
  CollectiveCall at(void* base) const;

  CollectiveCall call;  // without its tensors
  std::size_t own = 0;  // set rank
  bool has_input = false;
  std::size_t input_offset = 0;
  std::size_t output_offset = 0;

 private:
  std::vector<PackPlan> ranges(std::size_t most) const;
  std::vector<PackPlan> slices(std::size_t pieces) const;
};

// For `call` on the member `set_rank` of a set of `set_size`.
PackPlan plan_packing(const CollectiveCall& call, int set_size, int set_rank);

}  // namespace hvd::collectives::cuda
