#pragma once

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/collectives/shm/process_memory.h"
#include "test/runtime/collectives/shm/shm_ranks.h"

// Ranks that read each other's private tensors.
namespace hvd::collectives {

inline constexpr std::chrono::seconds kPatience{20};

// What the kernel does for ranks that are threads, done where ThreadSanitizer sees what is read.
inline ssize_t read_visibly(pid_t, const iovec* to, unsigned long count, const iovec* from, unsigned long,
                            unsigned long) {
  ssize_t bytes = 0;
  for (unsigned long i = 0; i < count; ++i) {
    std::memcpy(to[i].iov_base, from[i].iov_base, to[i].iov_len);
    bytes += static_cast<ssize_t>(to[i].iov_len);
  }
  return bytes;
}

// What one rank puts in, small whole numbers, and what comes out.
inline float input_at(int rank, std::int64_t i) { return static_cast<float>(rank * 1000 + i % 1000); }
inline float sum_at(int size, std::int64_t i) {
  return static_cast<float>(size * (i % 1000) + 1000 * size * (size - 1) / 2);
}
inline void fill(int rank, float* data, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) data[i] = input_at(rank, i);
}
inline bool holds_sums(int size, const float* data, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (data[i] != sum_at(size, i)) return false;
  }
  return true;
}

// How an allreduce ended on one rank.
struct Outcome {
  Status status;
  std::string path;
  bool is_right = false;
};

// N ranks as threads, and what each is told of reading. A call that fails on one of them ends the others', as a session
// sees to.
class CmaMembers {
 public:
  using Memory = std::function<std::shared_ptr<void>(int rank, std::size_t bytes)>;
  static std::shared_ptr<void> heap(int, std::size_t bytes) { return {std::malloc(bytes), std::free}; }

  CmaMembers(int size, ShmRanks::CmaOfRank cma) : ranks_(size, std::size_t{16} << 20, std::move(cma)) {
    for (int rank = 0; rank < size; ++rank) backends_.push_back(ranks_.backend(ranks_.all(), rank));
  }
  int size() const { return static_cast<int>(backends_.size()); }
  const ShmRanks& ranks() const { return ranks_; }

  // Of the tensors of each rank, which may not come out as sums: how it went.
  using Tensors = std::function<std::vector<Segment>(int rank)>;
  std::vector<Outcome> allreduce_list(const Tensors& tensors) const {
    return run([&](int rank) {
      Outcome outcome;
      outcome.status = call(rank, {.op = OpType::kAllreduce, .segments = tensors(rank)});
      outcome.path = backends_[static_cast<std::size_t>(rank)]->path();
      return outcome;
    });
  }
  // In place, of so many floats.
  std::vector<Outcome> allreduce(std::int64_t count, const Memory& memory = heap) const {
    return run([&](int rank) { return allreduce_of(rank, count, memory); });
  }

 private:
  std::vector<Outcome> run(const std::function<Outcome(int rank)>& f) const {
    std::vector<Outcome> outcomes(backends_.size());
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.push_back(start_thread(
          "rank", [&, rank](const std::stop_token&) { outcomes[static_cast<std::size_t>(rank)] = f(rank); }));
    }
    threads.clear();  // waits for them
    return outcomes;
  }
  Status call(int rank, const CollectiveCall& call) const {
    Status status = run_call(*backends_[static_cast<std::size_t>(rank)], call);
    if (!status.is_ok()) {
      for (const auto& backend : backends_) backend->abort(status);
    }
    return status;
  }
  Outcome allreduce_of(int rank, std::int64_t count, const Memory& memory) const {
    const auto data = memory(rank, static_cast<std::size_t>(count) * sizeof(float));
    auto* const values = static_cast<float*>(data.get());
    fill(rank, values, count);
    Outcome outcome;
    outcome.status = call(rank, {.op = OpType::kAllreduce, .output = values, .count = count});
    outcome.path = backends_[static_cast<std::size_t>(rank)]->path();
    outcome.is_right = holds_sums(size(), values, count);
    return outcome;
  }

  const ShmRanks ranks_;
  std::vector<std::unique_ptr<ShmBackend>> backends_;
};

inline bool all_went(const std::vector<Outcome>& outcomes, const std::string& path) {
  return std::ranges::all_of(outcomes, [&](const Outcome& outcome) {
    return outcome.status.is_ok() && outcome.is_right && outcome.path == path;
  });
}

}  // namespace hvd::collectives
