#include <catch2/catch.hpp>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/base/page_pool.h"

namespace hvd {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST_CASE("A page pool gives out again what came back, for a size that is nearly the same", "[base]") {
  const auto pool = PagePool::make({64 * kMiB, Millis(1000)});
  auto first = pool->take(20 * kMiB);
  void* const address = first.get();
  REQUIRE(address != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(address) % PagePool::kHugePage == 0);
  std::memset(address, 7, 20 * kMiB);
  auto second = pool->take(20 * kMiB);
  CHECK(second.get() != address);
  first.reset();
  CHECK(pool->idle_bytes() == 20 * kMiB);
  first = pool->take(19 * kMiB);
  CHECK(first.get() == address);
  CHECK(static_cast<unsigned char*>(address)[19 * kMiB - 1] == 7);  // the same pages
  CHECK(pool->idle_bytes() == 0);
  first.reset();
  CHECK(pool->take(40 * kMiB).get() != address);
}

TEST_CASE("A page pool keeps no more than its limits say", "[base]") {
  const auto pool = PagePool::make({10 * kMiB, Millis(1000)});
  std::vector<std::shared_ptr<void>> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(pool->take(4 * kMiB));
  void* const oldest = taken.front().get();
  for (auto& memory : taken) memory.reset();
  CHECK(pool->idle_bytes() == 8 * kMiB);
  for (auto& memory : taken) memory = pool->take(4 * kMiB);
  CHECK(taken[0].get() != oldest);
  CHECK(taken[1].get() != oldest);
  taken.clear();
  pool->take(11 * kMiB).reset();  // larger than the limit: the system's at once
  CHECK(pool->idle_bytes() == 8 * kMiB);
  pool->release_idle(SteadyClock::now());
  CHECK(pool->idle_bytes() == 8 * kMiB);
  pool->release_idle(SteadyClock::now() + Millis(1001));
  CHECK(pool->idle_bytes() == 0);
}

TEST_CASE("A page pool releases much idle memory in parts", "[base]") {
  const auto pool = PagePool::make({512 * kMiB, Millis(1000)});
  std::vector<std::shared_ptr<void>> taken;
  for (int i = 0; i < 5; ++i) taken.push_back(pool->take(32 * kMiB));
  taken.clear();
  const TimePoint later = SteadyClock::now() + Millis(1001);
  CHECK(pool->release_idle(later));
  CHECK(pool->idle_bytes() == 160 * kMiB - PagePool::kReleasedAtOnce);
  CHECK(pool->release_idle(later));
  CHECK_FALSE(pool->release_idle(later));
  CHECK(pool->idle_bytes() == 0);
}

TEST_CASE("Memory outlives the page pool's end, and small results do not come from it", "[base]") {
  auto pool = PagePool::make({64 * kMiB, Millis(1000)});
  auto held = pool->take(2 * kMiB);
  pool->take(2 * kMiB).reset();
  CHECK(pool->idle_bytes() == 2 * kMiB);
  const auto small = pool->take(0);
  CHECK(reinterpret_cast<std::uintptr_t>(small.get()) % PagePool::kAlignment == 0);
  CHECK(pool->take(PagePool::kSmallestBlock - 1) != nullptr);
  CHECK(pool->idle_bytes() == 2 * kMiB);
  pool->close();
  CHECK(pool->idle_bytes() == 0);
  pool->take(2 * kMiB).reset();
  CHECK(pool->idle_bytes() == 0);
  pool.reset();
  std::memset(held.get(), 1, 2 * kMiB);
}

TEST_CASE("A page pool says when there is no memory", "[base]") {
  const auto pool = PagePool::make({64 * kMiB, Millis(1000)});
  pool->take(2 * kMiB).reset();
  CHECK(pool->take(std::size_t{1} << 50) == nullptr);
  CHECK(pool->idle_bytes() == 0);  // it was given up for a second try
}

TEST_CASE("Threads share a page pool", "[base]") {
  const auto pool = PagePool::make({8 * kMiB, Millis(0)});
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 200; ++i) {
        const auto memory = pool->take((1 + static_cast<std::size_t>((i + t) % 4)) * kMiB);
        *static_cast<int*>(memory.get()) = i;
        if (i % 50 == 0) pool->release_idle(SteadyClock::now());
      }
    });
  }
  threads.clear();
  CHECK(pool->idle_bytes() <= 8 * kMiB);
}

}  // namespace
}  // namespace hvd
