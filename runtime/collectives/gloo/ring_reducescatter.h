#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include "runtime/base/deadline.h"
#include "runtime/collectives/backend.h"

namespace hvd::collectives {

// Reducescatter around the ring: the partial sum of each rank's part starts at that rank's right neighbour and
// arrives at the rank after N-1 hops, (N-1)/N of the bytes over every link. The input is only read; partial sums live
// in a window of segments that stays in the second-level cache, and are scaled where they are made. Every element is
// reduced on one rank per hop, in an order fixed by the ranks. Owned by a GlooBackend, used by one thread. Throws what
// Gloo throws.
class RingReducescatter {
 public:
  // Segments that travel together, and the size of each. Twice as many can be held: while one set is being sent on, the
  // next is received.
  static constexpr std::size_t kWindow = 4;
  static constexpr std::size_t kSegmentBytes = std::size_t{256} * 1024;

  // Requires: context->size > 1.
  RingReducescatter(std::shared_ptr<gloo::Context> context, Millis wait_timeout);

  // A reducescatter call. `tag` differs between the calls in a row on one context.
  void run(const CollectiveCall& call, std::uint32_t tag);

 private:
  class Run;
  // Memory of one segment, and whether a send from it is under way.
  struct Segment {
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    bool sending = false;
  };
  std::shared_ptr<gloo::Context> context_;
  Millis wait_timeout_;
  std::vector<std::uint8_t> memory_;  // allocated by the first run
  std::vector<Segment> segments_;     // 2 * kWindow
};

}  // namespace hvd::collectives
