#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/thread.h"
#include "runtime/collectives/backend.h"

namespace hvd::test {

// A backend for N ranks that are threads of this process: sums of float32, allgathers and
// alltoalls. A thread of its own moves
// the bytes once all ranks have made a call, so calls complete on a thread that no lane knows. It is as strict as the
// interface: whatever breaks it is written down. Shared by the ranks; outlives their backends.
class StrictBackends {
  template <typename F>
  auto locked(F f) {
    const std::lock_guard lock(mutex_);
    return f();
  }

 public:
  struct Options {
    int ranks = 2;
    collectives::BackendTraits traits{};
    std::function<std::string(const collectives::CallTraits&)> why_not = [](const auto&) { return std::string(); };
    // An error: start() completes with it.
    std::function<Status(int rank, std::size_t call)> on_start = [](int, std::size_t) { return Status::ok(); };
    // On the thread that completes, after the bytes of a call were moved and before it completes on any rank.
    std::function<void(std::size_t call)> before_end = [](std::size_t) {};
  };

  explicit StrictBackends(Options options)
      : options_(std::move(options)),
        ranks_(static_cast<std::size_t>(options_.ranks)),
        mover_(start_thread("mover", [this](const std::stop_token& stop) { move_bytes(stop); })) {}
  ~StrictBackends() {
    locked([&] { return mover_.request_stop(); });
    changed_.notify_all();
    mover_.join();
  }

  std::unique_ptr<collectives::CollectiveBackend> backend(int rank) { return std::make_unique<Backend>(*this, rank); }
  int ranks() const { return options_.ranks; }
  std::size_t started(int rank) {
    return locked([&] { return of(rank).started; });
  }
  std::size_t stagings(int rank) {
    return locked([&] { return of(rank).staging.size(); });
  }
  std::vector<collectives::CollectiveCall> calls(int rank) {
    return locked([&] { return of(rank).calls; });
  }
  Status aborted(int rank) {
    return locked([&] { return of(rank).failure; });
  }
  // Tensors copied into staging memory and out of it, by all ranks.
  std::size_t copies() const { return memory_.copies; }
  std::string breaches() {
    return locked([&] { return breaches_; });
  }

 private:
  // The host's, counted: whatever is packed goes through the memory of the backend that was chosen.
  class CountedMemory final : public collectives::Memory {
   public:
    void copy(void* dst, const void* src, std::size_t bytes) const override {
      ++copies;
      collectives::host_memory().copy(dst, src, bytes);
    }
    void scale_copy(DataType dtype, void* dst, const void* src, std::int64_t n, double factor) const override {
      ++copies;
      collectives::host_memory().scale_copy(dtype, dst, src, n, factor);
    }
    void scale_result(DataType dtype, void* dst, const void* src, std::int64_t n,
                      const kernels::Scaling& scaling) const override {
      ++copies;
      collectives::host_memory().scale_result(dtype, dst, src, n, scaling);
    }
    void zero(void* dst, std::size_t bytes) const override { collectives::host_memory().zero(dst, bytes); }
    std::shared_ptr<void> allocate(std::size_t bytes) const override {
      return collectives::host_memory().allocate(bytes);
    }
    mutable std::atomic<std::size_t> copies{0};
  };
  struct Rank {
    std::size_t started = 0;
    std::deque<std::pair<collectives::CollectiveCall, collectives::Completion>> under_way;
    std::vector<collectives::CollectiveCall> calls;
    std::vector<std::weak_ptr<void>> staging;  // ever allocated
    std::thread::id caller;
    Status failure;
  };

  class Backend final : public collectives::CollectiveBackend {
   public:
    Backend(StrictBackends& all, int rank) : all_(all), rank_(rank) {}
    ~Backend() override { all_.check_end(rank_); }
    std::string_view name() const override { return "strict"; }
    std::string why_not(const collectives::CallTraits& call) const override { return all_.options_.why_not(call); }
    collectives::BackendTraits traits() const override { return all_.options_.traits; }
    void start(const collectives::CollectiveCall& call, collectives::Completion done) override {
      if (Status refused = all_.begin(rank_, call, done); !refused.is_ok()) done(std::move(refused));
    }
    const collectives::Memory& memory(collectives::MemoryKind) const override { return all_.memory_; }
    std::shared_ptr<void> allocate_staging(collectives::MemoryKind, std::size_t bytes) override {
      auto memory = all_.memory_.allocate(bytes);
      all_.locked([&] { all_.of(rank_).staging.push_back(memory); });
      return memory;
    }
    void abort(const Status& why) override { all_.abort(rank_, why); }

   private:
    StrictBackends& all_;
    int rank_;
  };

  Rank& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  void expect(bool ok, const std::string& what) {
    if (!ok) breaches_ += what + "\n";
  }

  static std::vector<collectives::Segment> tensors(const collectives::CollectiveCall& call) {
    if (!call.segments.empty()) return call.segments;
    return {{call.input != nullptr ? call.input : call.output, call.output, call.count, call.rank_counts}};
  }

  // Not ok: the call has not begun.
  Status begin(int rank, const collectives::CollectiveCall& call, const collectives::Completion& done) {
    const std::lock_guard lock(mutex_);
    Rank& own = of(rank);
    if (own.started == 0) own.caller = std::this_thread::get_id();
    const std::size_t number = own.started++;
    expect(own.caller == std::this_thread::get_id(), "calls come from several threads");
    expect(own.under_way.size() < static_cast<std::size_t>(options_.traits.queue_depth), "more calls than asked for");
    expect(call.segments.empty() || options_.traits.takes_segments, "a list, which it does not take");
    std::uint64_t bytes = 0;
    for (const collectives::Segment& tensor : tensors(call)) {
      if (call.op == OpType::kAlltoall) break;  // no rank knows how much that is
      expect(tensor.count == 0 || (tensor.input != nullptr && tensor.output != nullptr), "a call without memory");
      std::int64_t count = tensor.count;
      if (call.op == OpType::kAllgather)
        count = std::accumulate(tensor.rank_counts.begin(), tensor.rank_counts.end(), std::int64_t{0});
      bytes += static_cast<std::uint64_t>(count) * element_size(call.dtype);
    }
    const std::string why_not = options_.why_not({call.op, call.dtype, call.reduce_op, call.memory, bytes});
    expect(why_not.empty(), "a call that it declined: " + why_not);
    if (!own.failure.is_ok()) return own.failure;
    if (Status status = options_.on_start(rank, number); !status.is_ok()) {
      own.failure = status;
      return status;
    }
    own.calls.push_back(call);
    own.under_way.emplace_back(call, done);
    changed_.notify_all();
    return Status::ok();
  }

  void abort(int rank, const Status& why) {
    std::deque<std::pair<collectives::CollectiveCall, collectives::Completion>> ended;
    {
      const std::lock_guard lock(mutex_);
      if (of(rank).failure.is_ok()) of(rank).failure = why;
      ended.swap(of(rank).under_way);
    }
    for (auto& [call, done] : ended) done(why);
  }

  void check_end(int rank) {
    const std::lock_guard lock(mutex_);
    expect(of(rank).under_way.empty(), "destroyed with calls under way");
    for (const auto& memory : of(rank).staging) expect(memory.expired(), "destroyed before its staging memory");
  }

  void move_bytes(const std::stop_token& stop) {
    for (std::size_t number = 0;; ++number) {
      std::unique_lock lock(mutex_);
      const auto is_complete = [&] {
        return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return !r.under_way.empty(); });
      };
      while (!stop.stop_requested() && !is_complete()) changed_.wait(lock);
      if (stop.stop_requested()) return;
      std::vector<collectives::CollectiveCall> calls;
      for (const Rank& rank : ranks_) calls.push_back(rank.under_way.front().first);
      run(calls);
      lock.unlock();
      options_.before_end(number);
      lock.lock();
      std::vector<collectives::Completion> ended;
      for (Rank& rank : ranks_) {
        if (rank.under_way.empty()) continue;  // aborted
        ended.push_back(std::move(rank.under_way.front().second));
        rank.under_way.pop_front();
      }
      lock.unlock();
      for (collectives::Completion& done : ended) done(Status::ok());
    }
  }

  void run(const std::vector<collectives::CollectiveCall>& calls) {
    std::vector<std::vector<collectives::Segment>> lists;
    for (const auto& call : calls) {
      lists.push_back(tensors(call));
      expect(call.op == calls[0].op && call.dtype == calls[0].dtype && lists.back().size() == lists[0].size(),
             "ranks make different calls");
    }
    if (!breaches_.empty()) return;
    if (calls[0].op == OpType::kAlltoall) return exchange(calls);
    for (std::size_t i = 0; i < lists[0].size(); ++i) {
      std::vector<collectives::Segment> tensor;
      for (const auto& list : lists) tensor.push_back(list[i]);
      calls[0].op == OpType::kAllgather ? gather(tensor) : sum(tensor, calls[0].scaling);
    }
  }

  void sum(const std::vector<collectives::Segment>& tensor, const kernels::Scaling& scaling) {
    std::vector<float> total(static_cast<std::size_t>(tensor[0].count), 0.0F);
    for (const collectives::Segment& part : tensor) {
      expect(part.count == tensor[0].count, "ranks give different numbers of elements");
      const auto* input = static_cast<const float*>(part.input);
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += input[i] * static_cast<float>(scaling.before);
    }
    for (float& element : total) element *= static_cast<float>(scaling.after);
    for (const collectives::Segment& part : tensor) std::memcpy(part.output, total.data(), 4 * total.size());
  }

  static void exchange(const std::vector<collectives::CollectiveCall>& calls) {
    std::vector<const char*> sources;
    for (const auto& call : calls) sources.push_back(static_cast<const char*>(call.input));
    for (std::size_t to = 0; to < calls.size(); ++to) {
      auto* output = static_cast<char*>(calls[to].output);
      for (std::size_t from = 0; from < calls.size(); ++from) {
        const auto bytes = static_cast<std::size_t>(calls[from].rank_counts[to]) * element_size(calls[from].dtype);
        std::memcpy(output, sources[from], bytes);
        output += bytes;
        sources[from] += bytes;
      }
    }
  }

  static void gather(const std::vector<collectives::Segment>& tensor) {
    std::vector<float> all;
    for (const collectives::Segment& part : tensor) {
      const auto* input = static_cast<const float*>(part.input);
      all.insert(all.end(), input, input + part.count);
    }
    for (const collectives::Segment& part : tensor) std::memcpy(part.output, all.data(), 4 * all.size());
  }

  const Options options_;
  const CountedMemory memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;
  std::string breaches_;
  std::jthread mover_;  // last: it uses everything above
};

}  // namespace hvd::test
