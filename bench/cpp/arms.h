#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bench/cpp/processes.h"

namespace hvd::bench {

// One contender: sums `count` float32 over all ranks in place. Exceptions and errors end the process with a message.
class Arm {
 public:
  virtual ~Arm() = default;
  virtual void allreduce(float* data, std::int64_t count) = 0;
  virtual bool is_correct() const { return true; }  // false for a bound, which moves bytes but adds nothing
};

// "ours":      GlooBackend over our own transport, what the product runs
// "ours_tcp":  GlooBackend over Gloo's stock TCP transport: our algorithms alone
// "gloo_tcp":  the same with Gloo's ring instead of ours
// "stock":     gloo::allreduce over Gloo's stock TCP transport
// "bound":     the same number of bytes through plain TCP sockets in a ring, one thread a rank, nothing added
std::unique_ptr<Arm> make_arm(const std::string& name, int rank, int size, Shared& shared);

}  // namespace hvd::bench
