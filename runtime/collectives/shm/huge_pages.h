#pragma once

#include <cstddef>
#include <optional>

#include "runtime/base/fd.h"
#include "runtime/collectives/shm/tensor_stream.h"

namespace hvd::collectives {

// Whether this process' memory lies in huge pages, as the kernel says (PAGEMAP_SCAN, from Linux 6.7 on). Owned by one
// thread.
class HugePages {
 public:
  // Whether at least 7 of 8 bytes of the inputs and outputs do. False where the kernel can't be asked. It costs
  // 1 µs and more for a tensor, and ends where the answer is no, after about an eighth of the pages.
  bool hold(const shm::TensorStream& tensors);
  // How many of the pages that these bytes touch do not lie in huge pages, or more than `most`; nothing: not known.
  std::optional<std::size_t> small_pages(const std::byte* memory, std::size_t bytes, std::size_t most);

 private:
  Fd pagemap_;
  bool is_known_ = true;
};

}  // namespace hvd::collectives
