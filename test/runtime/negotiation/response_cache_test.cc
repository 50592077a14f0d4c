#include <catch2/catch.hpp>

#include "runtime/negotiation/coordinator_cache.h"
#include "runtime/negotiation/worker_cache.h"

namespace hvd::negotiation {
namespace {

using wire::CacheBit;

wire::Response response(std::uint64_t bit, const std::string& name) {
  wire::Response r;
  r.bit = CacheBit{bit};
  r.name = name;
  return r;
}

std::vector<std::uint64_t> numbers(const std::vector<CacheBit>& bits) {
  std::vector<std::uint64_t> found;
  for (const CacheBit bit : bits) found.push_back(wire::value(bit));
  return found;
}
using Numbers = std::vector<std::uint64_t>;

TEST_CASE("CoordinatorCache evicts the least recently used entry", "[unit][response_cache]") {
  CoordinatorCache cache(2);
  CHECK(cache.insert(response(1, "a")).evicted.empty());
  CHECK(cache.insert(response(2, "b")).evicted.empty());
  cache.touch(CacheBit{1});
  const auto inserted = cache.insert(response(3, "c"));
  CHECK(inserted.stored);
  CHECK(numbers(inserted.evicted) == Numbers{2});
  CHECK(cache.find(CacheBit{2}) == nullptr);
  CHECK(cache.find(CacheBit{1})->name == "a");
  CHECK(cache.find(CacheBit{3})->name == "c");
}

TEST_CASE("CoordinatorCache never evicts what is pinned", "[unit][response_cache]") {
  CoordinatorCache cache(2);
  REQUIRE(cache.insert(response(1, "a")).stored);
  REQUIRE(cache.insert(response(2, "b")).stored);
  cache.pin(CacheBit{1});
  CHECK(numbers(cache.insert(response(3, "c")).evicted) == Numbers{2});
  CHECK_FALSE(cache.erase(CacheBit{1}));
  cache.pin(CacheBit{3});
  const auto refused = cache.insert(response(4, "d"));
  CHECK_FALSE(refused.stored);
  CHECK(refused.evicted.empty());
  cache.touch(CacheBit{1});
  CHECK(numbers(cache.insert(response(5, "e")).evicted) == Numbers{1});
  CHECK(cache.erase(CacheBit{5}));
  CHECK_FALSE(cache.erase(CacheBit{5}));
  CHECK(cache.size() == 1);
}

TEST_CASE("CoordinatorCache keeps most of a step with more names than it has room for", "[unit][response_cache]") {
  CoordinatorCache cache(100);
  std::vector<CacheBit> bits(103, CacheBit::kNone);
  std::uint64_t next = 1;
  const auto use = [&](std::size_t i) {  // true: the bit says it all
    if (cache.find(bits[i]) != nullptr) return cache.touch(bits[i]), true;
    bits[i] = CacheBit{next++};
    const auto inserted = cache.insert(response(value(bits[i]), "name" + std::to_string(i)));
    CHECK(inserted.full == (cache.size() == 100 && next > 101));
    if (!inserted.stored) bits[i] = CacheBit::kNone;
    return false;
  };
  for (int step = 0; step < 5; ++step) {
    int hits = 0;
    for (std::size_t i = 0; i < bits.size(); ++i) hits += use(i) ? 1 : 0;
    if (step > 0) CHECK(hits == 100);
  }
  // Other names take their place when these are not used any more: LRU for those that were never seen.
  for (std::size_t i = 0; i < 100; ++i) REQUIRE(cache.insert(response(1000 + i, "other" + std::to_string(i))).stored);
}

TEST_CASE("UseHistory remembers the last use, of a bounded number of names", "[unit][response_cache]") {
  UseHistory history;
  history.put("a", 1);
  history.put("b", 2);
  history.put("a", 3);
  CHECK(history.take("a") == 3u);
  CHECK_FALSE(history.take("a"));
  for (std::size_t i = 0; i < UseHistory::kNames; ++i) history.put("c" + std::to_string(i % 10), 4 + i);
  CHECK_FALSE(history.take("b"));
  CHECK(history.take("c9"));
}

TEST_CASE("CoordinatorCache replaces an entry of the same name", "[unit][response_cache]") {
  CoordinatorCache cache(4);
  REQUIRE(cache.insert(response(1, "a")).stored);
  const auto inserted = cache.insert(response(2, "a"));
  CHECK(inserted.stored);
  CHECK(numbers(inserted.evicted) == Numbers{1});
  CHECK(cache.size() == 1);
}

TEST_CASE("CoordinatorCache of capacity 0 stores nothing", "[unit][response_cache]") {
  CoordinatorCache cache(0);
  CHECK_FALSE(cache.insert(response(1, "a")).stored);
  CHECK(cache.size() == 0);
}

TEST_CASE("WorkerCache hits only when every parameter of the request is the same", "[unit][response_cache]") {
  wire::Request request;
  request.rank = 3;
  request.name = "a";
  request.shape = {2, 3};
  WorkerCache cache;
  CHECK(cache.look_up(request).outcome == WorkerCache::Outcome::kMiss);
  cache.insert(std::make_shared<wire::Response>(response(7, "a")), request);
  CHECK(cache.look_up(request).outcome == WorkerCache::Outcome::kHit);
  CHECK(cache.look_up(request).bit == CacheBit{7});

  const auto changed = [&](auto change) {
    wire::Request other = request;
    change(other);
    const auto found = cache.look_up(other);
    return found.outcome == WorkerCache::Outcome::kChanged && found.bit == CacheBit{7};
  };
  CHECK(changed([](wire::Request& r) { r.op = OpType::kAllgather; }));
  CHECK(changed([](wire::Request& r) { r.dtype = DataType::kFloat64; }));
  CHECK(changed([](wire::Request& r) { r.shape = {3, 2}; }));
  CHECK(changed([](wire::Request& r) { r.device = 0; }));
  CHECK(changed([](wire::Request& r) { r.prescale = 0.5; }));
  CHECK(changed([](wire::Request& r) { r.postscale = 0.5; }));
  CHECK(changed([](wire::Request& r) { r.reduce_op = ReduceOp::kMax; }));
  CHECK(changed([](wire::Request& r) { r.group_key = 5; }));
  CHECK(changed([](wire::Request& r) { r.group_size = 2; }));

  request.name = "b";
  CHECK(cache.look_up(request).outcome == WorkerCache::Outcome::kMiss);
}

TEST_CASE("WorkerCache forgets an evicted bit and its name", "[unit][response_cache]") {
  wire::Request request;
  request.name = "a";
  WorkerCache cache;
  cache.insert(std::make_shared<wire::Response>(response(7, "a")), request);
  CHECK(cache.erase(CacheBit{7}));
  CHECK_FALSE(cache.erase(CacheBit{7}));
  CHECK(cache.find(CacheBit{7}) == nullptr);
  CHECK(cache.look_up(request).outcome == WorkerCache::Outcome::kMiss);
  CHECK(cache.size() == 0);
}

}  // namespace
}  // namespace hvd::negotiation
