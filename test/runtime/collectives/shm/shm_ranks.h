#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/thread.h"
#include "runtime/collectives/shm/arena.h"
#include "runtime/collectives/shm/shm_backend.h"
#include "test/runtime/collectives/run_call.h"

namespace hvd::collectives {

// N ranks that are threads and share one mapping, so that ThreadSanitizer sees what each of them does to it.
class ShmRanks {
 public:
  using CmaOfRank = std::function<CmaOptions(int rank)>;
  explicit ShmRanks(
      int size, std::size_t arena_bytes = 0, CmaOfRank cma = [](int) { return CmaOptions{}; })
      : size_(size), memory_{ShmSegment::create(size, arena_bytes).value().first, ""}, cma_(std::move(cma)) {
    for (int rank = 0; rank < size; ++rank) arenas_.push_back(ShmArena::make(memory_.segment, rank));
  }

  ShmArena& arena(int rank) const { return *arenas_[static_cast<std::size_t>(rank)]; }
  const ShmSegment& segment() const { return *memory_.segment; }

  // The set of these ranks; context ids tell sets apart.
  std::unique_ptr<ShmBackend> backend(std::vector<int> ranks, int rank, std::uint64_t context_id = 0) const {
    const int own = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
    return std::make_unique<ShmBackend>(
        memory_,
        ShmSet{.ranks = std::move(ranks), .own = own, .context_id = context_id, .why_not = "", .cma = cma_(rank)});
  }
  std::vector<int> all() const {
    std::vector<int> ranks(static_cast<std::size_t>(size_));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  // Runs `body` for every rank, on a thread and with a backend of the set of all, and waits for all; with a moment,
  // aborts them all after so many turns of other threads.
  void run(const std::function<void(int rank, ShmBackend& backend)>& body, std::optional<int> moment = {}) const {
    std::vector<std::unique_ptr<ShmBackend>> backends;
    for (int rank = 0; rank < size_; ++rank) backends.push_back(backend(all(), rank));
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.push_back(start_thread("rank-" + std::to_string(rank), [&, rank](const std::stop_token&) {
        body(rank, *backends[static_cast<std::size_t>(rank)]);
      }));
    }
    if (!moment) return;
    for (int i = 0; i < *moment; ++i) std::this_thread::yield();
    for (const auto& backend : backends) backend->abort(Status::aborted("enough"));
  }

 private:
  int size_;
  SharedMemory memory_;
  CmaOfRank cma_;
  std::vector<std::shared_ptr<ShmArena>> arenas_;
};

}  // namespace hvd::collectives
