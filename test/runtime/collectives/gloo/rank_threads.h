#pragma once

#include <barrier>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/thread.h"
#include "runtime/collectives/gloo/gloo_backend.h"
#include "runtime/crypto/secret.h"
#include "runtime/transport/control/control_links.h"
#include "runtime/transport/data/message_context.h"
#include "runtime/transport/fabric.h"
#include "runtime/transport/net/address_row.h"
#include "test/runtime/collectives/run_call.h"

namespace hvd::collectives {

// The numbers of ranks that a test of many combinations runs with. Under a sanitizer, which is slow, an even and an odd
// one. NOLINTNEXTLINE(performance-unnecessary-value-param): a sanitizer run changes it
inline auto rank_counts(std::vector<int> all) {
#ifdef HVD_SANITIZED
  std::erase_if(all, [](int size) { return size != 2 && size != 5; });
#endif
  return Catch::Generators::from_range(all);
}

// A store in memory for N ranks in one process.
class MemoryStore {
 public:
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

// The address rows of our transport, from the store.
class StoredRows final : public transport::RowSource {
 public:
  explicit StoredRows(MemoryStore& store) : store_(store) {}
  Result<std::vector<Bytes>> rows(std::span<const int> ranks, Deadline deadline) override {
    std::vector<Bytes> result;
    for (const int rank : ranks) {
      HVD_ASSIGN_OR_RETURN(Bytes row, store_.wait("row/" + std::to_string(rank), deadline));
      result.push_back(std::move(row));
    }
    return result;
  }

 private:
  MemoryStore& store_;
};

// What the backends of one rank get their contexts from. Outlives them.
class ContextSource {
 public:
  ContextSource(int rank, int size, MemoryStore& store) : rank_(rank), size_(size), store_(store), rows_(store) {}

  // For a set of all ranks.
  Result<std::shared_ptr<gloo::Context>> make() {
    std::vector<int> ranks(static_cast<std::size_t>(size_));
    std::iota(ranks.begin(), ranks.end(), 0);
    return make(kContext, ranks);
  }
  Result<std::shared_ptr<gloo::Context>> make(std::uint64_t context, const std::vector<int>& ranks) {
    const std::lock_guard lock(mutex_);
    if (fabric_ == nullptr) HVD_RETURN_IF_ERROR(open());
    return fabric_->make_context(context, ranks);
  }
  void abort(const Status& why) { fabric_->abort_context(kContext, why); }
  Status connect(std::span<const transport::ExpectedMessage> messages) { return fabric_->connect_data(messages); }

 private:
  static constexpr std::uint64_t kContext = 1;
  Status open() {
    transport::FabricOptions fabric_options;
    fabric_options.rank = rank_;
    fabric_options.size = size_;
    fabric_options.sockets = 1 + size_ % 4;
    HVD_ASSIGN_OR_RETURN(fabric_, transport::Fabric::create(fabric_options));
    HVD_RETURN_IF_ERROR(store_.put("row/" + std::to_string(rank_), fabric_->address_row()));
    const auto secret = crypto::Secret::from_bytes(Bytes(crypto::kSecretSize, 7)).value();
    return fabric_->open(1, secret, rows_);
  }

  int rank_;
  int size_;
  MemoryStore& store_;
  StoredRows rows_;
  std::mutex mutex_;  // sets of one rank may begin at once
  std::unique_ptr<transport::Fabric> fabric_;
};

struct RunOptions {
  int adasum_local_size = 1;
  bool deterministic = false;
};

// Runs `body(rank, backend)` for N ranks, a thread and a backend on loopback each, and waits for all. No backend is
// destroyed before all bodies are done, as in a job. Catch2's assertions are not thread-safe: bodies collect, and the
// test checks afterwards.
inline void run_ranks(int size, const std::function<void(int, GlooBackend&)>& body, RunOptions options = {}) {
  MemoryStore store;
  std::barrier all_done(size);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.push_back(start_thread("rank-" + std::to_string(rank), [&, rank](const std::stop_token&) {
      ContextSource source(rank, size, store);
      {
        GlooBackendOptions backend_options;
        backend_options.adasum_local_size = options.adasum_local_size;
        backend_options.deterministic = options.deterministic;
        GlooBackend backend(
            {.make = [&] { return source.make(); },
             .abort = [&](const Status& why) { source.abort(why); },
             .connect = [&](std::span<const transport::ExpectedMessage> all) { return source.connect(all); }},
            backend_options);
        body(rank, backend);
        all_done.arrive_and_wait();
      }
    }));
  }
}

}  // namespace hvd::collectives
