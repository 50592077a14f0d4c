#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "runtime/collectives/backend.h"

namespace hvd::collectives {

// The order in which this rank starts collectives on its GPUs, and in which they run there: that of the decisions,
// which all ranks get in the same order, whatever set they are of. Kernels of collectives wait for each other on
// several GPUs; where one GPU had no room beside A and another one none beside B, both would wait for good. Each lane
// waits for its turn, so what starts later never holds up what starts earlier. One a session; thread-safe.
class LaunchOrder : public std::enable_shared_from_this<LaunchOrder> {
 public:
  // In the order of decisions.
  std::shared_ptr<LaunchTurn> next();

 private:
  friend class LaunchTurn;
  struct Last {
    const void* stream;
    std::shared_ptr<cuda::Event> end;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t given_ = 0;
  std::set<std::uint64_t> open_;  // turns that have not passed
  std::map<int, Last> last_;      // by GPU: where the collective that was started last ends
};

// A batch's place in that order. It passes when it is let go of, whatever became of the batch.
class LaunchTurn {
 public:
  LaunchTurn(std::shared_ptr<LaunchOrder> order, std::uint64_t number) : order_(std::move(order)), number_(number) {}
  ~LaunchTurn() { pass(); }
  LaunchTurn(const LaunchTurn&) = delete;
  LaunchTurn& operator=(const LaunchTurn&) = delete;

  // Until all turns before it have passed. Their batches end, because an abort ends what they wait for.
  void wait();
  // The batch has started all that it starts on GPUs. More than once does no harm.
  void pass();
  // Where the collective before this one ends on a GPU; null: nowhere, or in `stream` itself. Requires: wait().
  std::shared_ptr<cuda::Event> before(int device, const void* stream) const;
  // Where this one does. Requires: wait().
  void ends(int device, const void* stream, std::shared_ptr<cuda::Event> end);

 private:
  const std::shared_ptr<LaunchOrder> order_;
  const std::uint64_t number_;
};

}  // namespace hvd::collectives
