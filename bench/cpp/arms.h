#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "bench/cpp/processes.h"

namespace hvd::bench {

// One contender: sums `count` float32 over all ranks in place, or broadcasts rank 0's. Exceptions and errors end the
// process with a message.
class Arm {
 public:
  virtual ~Arm() = default;
  virtual void run(float* data, std::int64_t count) = 0;
  // Where `data` has to lie, for tensors of so many elements until the next call; null: anywhere.
  virtual float* memory(std::int64_t /*count*/) { return nullptr; }
  enum class Result { kSum, kOfRank0, kNone };  // none: a bound, which moves bytes but adds nothing
  virtual Result result() const { return Result::kSum; }
};

[[noreturn]] void die(const std::string& what);
inline void require(const Status& status) {
  if (!status.is_ok()) die(status.to_string());
}
template <typename Value>
Value require(Result<Value> made) {
  require(made.status());
  return std::move(made).value();
}

// "ours":      GlooBackend over our own transport, what the product runs
// "stock":     gloo::allreduce over Gloo's stock TCP transport
// "bound":     the same number of bytes through plain TCP sockets in a ring, one thread a rank, nothing added
// "exchange", "halving", "ring": one algorithm of ours over our own transport, whatever the size
// "chain", "tree": broadcasts from rank 0 in segments along the ranks, and by Gloo's tree
// "ours_shared", "ours_staged": the shared-memory backend with tensors that lie there, and with private ones
// "ours_exchanged": tensors that callers exchange in shared memory, at most 4 MiB
// "in_place":  a bound for ours_shared: every rank reads and writes its own tensor there once
// "parts":     another: every rank adds its part of all tensors and writes it to all; nobody waits for anybody
// "open_mpi", "mpich": MPI_Allreduce in place, in processes that its mpirun started
// "nothing":   what rewriting and reading the tensor takes by itself
std::unique_ptr<Arm> make_arm(const std::string& name, int rank, int size, Shared& shared);
// Of these those of ranks on one host that share memory (shared_arms.cc), and MPI's (mpi_arm.cc), whose mpirun must
// have started this process, and which needs the library alone, no headers. Null for other names.
std::unique_ptr<Arm> make_shared_arm(const std::string& name, int rank, int size, Shared& shared);
std::unique_ptr<Arm> make_mpi_arm(const std::string& name);

}  // namespace hvd::bench
