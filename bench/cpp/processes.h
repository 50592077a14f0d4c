#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "bench/cpp/stock_tcp.h"

namespace hvd::bench {

// Memory and meeting points of the processes of one benchmark. Lives in a shared mapping, zero to begin with: an
// anonymous one from before the fork (run_processes), or a file (run_rank).
class Shared {
 public:
  static constexpr int kMaxRanks = 64;
  static constexpr int kMaxEntries = 4096;
  static constexpr std::size_t kMaxValue = std::size_t{12} * 1024;

  // Polls with sched_yield, so that all leave within a few microseconds where there are enough cores; who has waited
  // for 2 ms leaves the core to those that it waits for.
  void barrier(int size);
  // One number of every rank, for the maximum over them.
  std::atomic<std::int64_t>& cell(int rank) { return cells_[rank]; }
  // A key-value store for bringing up connections.
  Status put(const std::string& key, const Bytes& value);
  Result<Bytes> wait(const std::string& key, Deadline deadline);
  StockTcpStore store();

 private:
  struct Entry {
    std::atomic<bool> ready;
    char key[120];
    std::size_t size;
    std::uint8_t value[kMaxValue];
  };
  std::atomic<std::int64_t> arrived_;
  std::atomic<std::int64_t> cells_[kMaxRanks];
  std::atomic<int> entries_used_;
  Entry entries_[kMaxEntries];
};

using RankBody = std::function<int(int rank, Shared& shared)>;

// Forks `size` ranks, runs `body` in each and waits. Returns the first exit code that is not 0, else 0.
int run_processes(int size, const RankBody& body);

// Runs `body` in this process as the rank that mpirun gave it. The ranks of one job meet in one new file.
int run_rank(const std::string& file, const RankBody& body);

}  // namespace hvd::bench
