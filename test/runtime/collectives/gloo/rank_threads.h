#pragma once

#include <barrier>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/thread.h"
#include "runtime/collectives/gloo/gloo_backend.h"
#include "runtime/collectives/gloo/stock_tcp.h"

namespace hvd::collectives {

// A store in memory for N ranks in one process.
class MemoryStore {
 public:
  StockTcpStore view() {
    return {[this](const std::string& key, const Bytes& value) { return put(key, value); },
            [this](const std::string& key, Deadline deadline) { return wait(key, deadline); }};
  }
  Status put(const std::string& key, const Bytes& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
    return Status::ok();
  }
  Result<Bytes> wait(const std::string& key, Deadline deadline) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline.when(), [&] { return values_.count(key) != 0; })) {
      return Status::timeout("nobody put " + key);
    }
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Bytes> values_;
};

// Runs `body(rank, backend)` for N ranks, a thread and a backend over stock Gloo on loopback each, and waits for all.
// No backend goes before all bodies are done, as in a job. Catch2's assertions are not for several threads: bodies collect, and the test checks afterwards.
inline void run_ranks(int size, const std::function<void(int, GlooBackend&)>& body, Millis timeout = Millis(20000),
                      GlooBackendOptions::Ring ring = GlooBackendOptions::Ring::kOurs) {
  MemoryStore store;
  std::barrier all_done(size);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.push_back(start_thread("rank-" + std::to_string(rank), [&, rank](std::stop_token) {
      const StockTcpOptions options{rank, size, "127.0.0.1", "test", timeout};
      GlooBackend backend([&] { return make_stock_tcp_context(options, store.view()); }, {timeout, ring});
      body(rank, backend);
      all_done.arrive_and_wait();
    }));
  }
}

// Runs one call to its end.
inline Status run_call(GlooBackend& backend, const CollectiveCall& call) {
  std::optional<Status> result;
  int completions = 0;
  backend.start(call, [&](Status status) {
    result = std::move(status);
    ++completions;
  });
  if (completions != 1) return Status::internal("completed " + std::to_string(completions) + " times");
  return *result;
}

}  // namespace hvd::collectives
