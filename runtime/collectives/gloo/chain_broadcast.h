#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <gloo/context.h>

#include "runtime/base/deadline.h"

namespace hvd::collectives {

// Broadcast of large payloads along the ranks in a row, from the root on, in segments that a rank passes on as they
// come: every link carries the payload once, where a tree's root sends it log2 N times. Owned by a GlooBackend, used by
// one thread. Throws what Gloo throws.
class ChainBroadcast {
 public:
  // It costs as many hops as there are ranks, which the root's sends of a tree outweigh from here on, measured between
  // hosts. Of two ranks a tree does the same.
  static constexpr bool is_better_than_tree(int size, std::size_t bytes) {
    return size > 2 && bytes / kBytesPerRank >= static_cast<std::size_t>(size);
  }

  ChainBroadcast(std::shared_ptr<gloo::Context> context, Millis wait_timeout)
      : context_(std::move(context)), wait_timeout_(wait_timeout) {}

  // `tag` differs between the calls in a row on one context. Requires: bytes > 0.
  void run(void* data, std::size_t bytes, int root, std::uint32_t tag);

 private:
  static constexpr std::size_t kBytesPerRank = std::size_t{64} << 10;
  static constexpr std::size_t kSegmentBytes = std::size_t{256} << 10;
  static constexpr std::size_t kWindow = 4;  // receives in flight
  std::shared_ptr<gloo::Context> context_;
  Millis wait_timeout_;
};

}  // namespace hvd::collectives
