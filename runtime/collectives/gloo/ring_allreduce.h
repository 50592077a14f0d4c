#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include "horovod/types.h"
#include "runtime/base/deadline.h"
#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {

// Allreduce for payloads where bandwidth counts: the ring, 2(N-1)/N of the bytes over every link, as one pipeline of
// segments without a stop between its two halves. Differs from Gloo's own ring in that its receive memory is allocated
// once (Gloo's is fresh, so faulted in page by page, in every call) and small enough to stay in the second-level cache
// until it is reduced, and in that a segment goes on as soon as it is reduced. Every element is reduced on one rank per
// hop, so all ranks get the same bits. Input and output may be different memory, which costs no pass over either: the
// first step sends from the input, and a reduction reads one and writes the other. Scaling costs none: a rank scales
// what it reduces while that is in the first-level cache, and the result where it is made. Owned by a GlooBackend, used
// by one thread. Throws what Gloo throws.
class RingAllreduce {
 public:
  // Receives in flight, and the size of each: together they hide the hand-over between the network's thread and ours.
  static constexpr std::size_t kWindow = 4;
  static constexpr std::size_t kSegmentBytes = std::size_t{256} * 1024;

  // Requires: context->size > 1.
  RingAllreduce(std::shared_ptr<gloo::Context> context, Millis wait_timeout);

  // Memory of `count` elements, and what becomes of them. `input` is `output`, or is only read and does not overlap it.
  struct Call {
    const void* input;
    void* output;
    std::int64_t count;
    DataType dtype;
    ReduceOp op;
    kernels::Scaling scaling{};
  };
  // `tag` differs between the calls in a row on one context. Requires: count > 0.
  void run(const Call& call, std::uint32_t tag);

 private:
  class Run;
  std::shared_ptr<gloo::Context> context_;
  Millis wait_timeout_;
  std::vector<std::uint8_t> memory_;  // kWindow segments
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> scratch_;
};

}  // namespace hvd::collectives
