#pragma once

#include <barrier>
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/thread.h"
#include "runtime/collectives/gloo/gloo_backend.h"
#include "test/runtime/collectives/run_call.h"
#include "test/runtime/transport/fabric_group.h"

namespace hvd::collectives {

// The numbers of ranks that a test of many combinations runs with. Under a sanitizer, which is slow, an even and an odd
// one. NOLINTNEXTLINE(performance-unnecessary-value-param): a sanitizer run changes it
inline auto rank_counts(std::vector<int> all) {
#ifdef HVD_SANITIZED
  std::erase_if(all, [](int size) { return size != 2 && size != 5; });
#endif
  return Catch::Generators::from_range(all);
}

// The fabrics of N ranks in one process, with one to four connections for a pair.
inline test::FabricGroup loopback_fabrics(int size) {
  transport::FabricOptions options;
  options.sockets = 1 + size % 4;
  return test::FabricGroup(size, 1, options);
}

inline std::vector<int> all_of(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Where a rank's backend of these members gets its context from. The fabric outlives the backend.
inline GlooContextSource contexts_of(transport::Fabric& fabric, std::vector<int> members, std::uint64_t context = 1) {
  return {.make = [&fabric, members, context] { return fabric.make_context(context, members); },
          .abort = [&fabric, context](const Status& why) { fabric.abort_context(context, why); },
          .connect =
              [&fabric, members](std::span<const transport::ExpectedMessage> all) {
                std::vector<transport::ExpectedMessage> by_rank(all.begin(), all.end());
                for (auto& message : by_rank) message.peer = members[static_cast<std::size_t>(message.peer)];
                return fabric.connect_data(by_rank);
              }};
}

struct RunOptions {
  int adasum_local_size = 1;
  bool deterministic = false;
};

// Runs `body(rank, backend)` for N ranks, a thread and a backend on loopback each, and waits for all. No backend is
// destroyed before all bodies are done, as in a job. Catch2's assertions are not thread-safe: bodies collect, and the
// test checks afterwards.
inline void run_ranks(int size, const std::function<void(int, GlooBackend&)>& body, RunOptions options = {}) {
  const test::FabricGroup fabrics = loopback_fabrics(size);
  std::barrier all_done(size);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.push_back(start_thread("rank-" + std::to_string(rank), [&, rank](const std::stop_token&) {
      GlooBackendOptions backend_options;
      backend_options.adasum_local_size = options.adasum_local_size;
      backend_options.deterministic = options.deterministic;
      GlooBackend backend(contexts_of(fabrics.of(rank), all_of(size)), backend_options);
      body(rank, backend);
      all_done.arrive_and_wait();
    }));
  }
}

}  // namespace hvd::collectives
