#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bench/cpp/processes.h"

namespace hvd::bench {

// One contender: sums `count` float32 over all ranks in place, or broadcasts rank 0's. Exceptions and errors end the
// process with a message.
class Arm {
 public:
  virtual ~Arm() = default;
  virtual void run(float* data, std::int64_t count) = 0;
  enum class Result { kSum, kOfRank0, kNone };  // none: a bound, which moves bytes but adds nothing
  virtual Result result() const { return Result::kSum; }
};

// "ours":      GlooBackend over our own transport, what the product runs
// "ours_tcp":  GlooBackend over Gloo's stock TCP transport: our algorithms alone
// "gloo_tcp":  the same with Gloo's ring instead of ours
// "stock":     gloo::allreduce over Gloo's stock TCP transport
// "bound":     the same number of bytes through plain TCP sockets in a ring, one thread a rank, nothing added
// "exchange", "halving", "ring": one algorithm of ours over our own transport, whatever the size
// "chain", "tree": broadcasts from rank 0 in segments along the ranks, and by Gloo's tree
std::unique_ptr<Arm> make_arm(const std::string& name, int rank, int size, Shared& shared);

}  // namespace hvd::bench
