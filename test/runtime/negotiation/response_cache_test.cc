#include <catch2/catch.hpp>

#include "runtime/negotiation/coordinator_cache.h"
#include "runtime/negotiation/worker_cache.h"

namespace hvd::negotiation {
namespace {

using wire::CacheBit;

CoordinatorCache::Inserted insert(CoordinatorCache& cache, std::uint64_t bit, std::vector<std::string> names,
                                  std::size_t most_evicted = 100) {
  return cache.insert({CacheBit{bit}, OpType::kAllreduce, std::move(names)}, most_evicted);
}

std::vector<std::uint64_t> numbers(const std::vector<CacheBit>& bits) {
  std::vector<std::uint64_t> found;
  for (const CacheBit bit : bits) found.push_back(wire::value(bit));
  return found;
}
using Numbers = std::vector<std::uint64_t>;

TEST_CASE("CoordinatorCache evicts the least recently used entry", "[unit][response_cache]") {
  CoordinatorCache cache(2);
  CHECK(insert(cache, 1, {"a"}).evicted.empty());
  CHECK(insert(cache, 2, {"b"}).evicted.empty());
  cache.touch(CacheBit{1});
  const auto inserted = insert(cache, 3, {"c"});
  CHECK(inserted.stored);
  CHECK(numbers(inserted.evicted) == Numbers{2});
  CHECK(cache.find(CacheBit{2}) == nullptr);
  CHECK(cache.find(CacheBit{1})->names.front() == "a");
  CHECK(cache.find(CacheBit{3})->names.front() == "c");
}

TEST_CASE("CoordinatorCache never evicts what is pinned", "[unit][response_cache]") {
  CoordinatorCache cache(2);
  REQUIRE(insert(cache, 1, {"a"}).stored);
  REQUIRE(insert(cache, 2, {"b"}).stored);
  cache.pin(CacheBit{1});
  CHECK(numbers(insert(cache, 3, {"c"}).evicted) == Numbers{2});
  CHECK_FALSE(cache.erase(CacheBit{1}));
  cache.pin(CacheBit{3});
  const auto refused = insert(cache, 4, {"d"});
  CHECK_FALSE(refused.stored);
  CHECK(refused.evicted.empty());
  cache.touch(CacheBit{1});
  CHECK(numbers(insert(cache, 5, {"e"}).evicted) == Numbers{1});
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
    const auto inserted = insert(cache, value(bits[i]), {"name" + std::to_string(i)});
    CHECK(inserted.was_missed == (next > bits.size() + 1));
    if (!inserted.stored) bits[i] = CacheBit::kNone;
    return false;
  };
  for (int step = 0; step < 5; ++step) {
    int hits = 0;
    for (std::size_t i = 0; i < bits.size(); ++i) hits += use(i) ? 1 : 0;
    if (step > 0) CHECK(hits == 100);
  }
  // Other names take their place when these are not used any more: LRU for those that were never seen.
  for (std::size_t i = 0; i < 100; ++i) REQUIRE(insert(cache, 1000 + i, {"other" + std::to_string(i)}).stored);
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
  REQUIRE(insert(cache, 1, {"a"}).stored);
  const auto inserted = insert(cache, 2, {"a"});
  CHECK(inserted.stored);
  CHECK(numbers(inserted.evicted) == Numbers{1});
  CHECK(cache.size() == 1);
}

TEST_CASE("CoordinatorCache gives a group one place, which the names of all its members evict",
          "[unit][response_cache]") {
  CoordinatorCache cache(2);
  REQUIRE(insert(cache, 1, {"a"}).stored);
  REQUIRE(insert(cache, 2, {"b", "c", "d"}).stored);
  CHECK(cache.size() == 2);
  const auto single = insert(cache, 3, {"c"});
  CHECK(single.stored);
  CHECK(numbers(single.evicted) == Numbers{2});
  const auto group = insert(cache, 4, {"a", "c", "e"});
  CHECK(group.stored);
  CHECK_FALSE(group.was_missed);
  CHECK(numbers(group.evicted) == Numbers{1, 3});
  CHECK(cache.size() == 1);
}

TEST_CASE("CoordinatorCache stores nothing that needs more evictions than there is room for, or a pinned one",
          "[unit][response_cache]") {
  CoordinatorCache cache(8);
  for (const std::uint64_t bit : {1, 2, 3}) REQUIRE(insert(cache, bit, {std::string(1, "0abc"[bit])}).stored);
  const auto crowded = insert(cache, 4, {"a", "b", "c"}, 2);
  CHECK_FALSE(crowded.stored);
  CHECK(numbers(crowded.evicted) == Numbers{1, 2});
  cache.pin(CacheBit{3});
  const auto refused = insert(cache, 5, {"c", "d"});
  CHECK_FALSE(refused.stored);
  CHECK(refused.evicted.empty());
  CHECK(cache.size() == 1);
}

TEST_CASE("CoordinatorCache of capacity 0 stores nothing", "[unit][response_cache]") {
  CoordinatorCache cache(0);
  CHECK_FALSE(insert(cache, 1, {"a"}).stored);
  CHECK(cache.size() == 0);
}

std::shared_ptr<const wire::Response> response(std::uint64_t bit, const wire::Request& request) {
  auto r = std::make_shared<wire::Response>();
  r->bit = CacheBit{bit};
  r->name = request.name;
  r->group_key = request.group_key;
  r->group_size = request.group_size;
  return r;
}

// The bits under which the name is cached.
std::vector<CacheBit> bits_of(const WorkerCache& cache, const std::vector<OwnRequest>& requests) {
  std::vector<CacheBit> bits;
  cache.add_bits_of(requests, bits);
  return bits;
}

TEST_CASE("WorkerCache hits only when every parameter of the request is the same", "[unit][response_cache]") {
  wire::Request request;
  request.rank = 3;
  request.name = "a";
  request.shape = {2, 3};
  WorkerCache cache;
  const auto find = [&](const wire::Request& one) { return cache.find(std::vector{OwnRequest{one}}); };
  CHECK(find(request) == nullptr);
  REQUIRE(cache.insert(response(7, request), request));
  REQUIRE(find(request) != nullptr);
  CHECK(find(request)->bit == CacheBit{7});

  const auto changed = [&](auto change) {
    wire::Request other = request;
    change(other);
    return find(other) == nullptr && bits_of(cache, {{other}}) == std::vector{CacheBit{7}};
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
  CHECK(find(request) == nullptr);
  CHECK(bits_of(cache, {{request}}).empty());
}

// A group of the names, in that order.
std::vector<OwnRequest> group_of(const std::vector<std::string>& names) {
  std::vector<wire::Request> requests;
  for (const std::string& name : names) requests.emplace_back().name = name;
  wire::make_group(requests);
  std::vector<OwnRequest> group;
  for (wire::Request& request : requests) group.push_back({std::move(request)});
  return group;
}

TEST_CASE("WorkerCache knows a group when it has all members, and only that one", "[unit][response_cache]") {
  const auto group = group_of({"a", "b", "c"});
  WorkerCache cache;
  REQUIRE(cache.insert(response(7, group[2].request), group[2].request, 2));  // as they became ready at the root
  REQUIRE(cache.insert(response(7, group[0].request), group[0].request, 0));
  CHECK(cache.find(group) == nullptr);
  CHECK(bits_of(cache, {group[0]}) == std::vector{CacheBit{7}});  // a use of it alone evicts the rest
  REQUIRE(cache.insert(response(7, group[1].request), group[1].request, 1));
  REQUIRE(cache.find(group) != nullptr);
  CHECK(cache.find(group) == cache.find(CacheBit{7}));
  CHECK(cache.find(group)->places == std::vector<std::uint32_t>{2, 0, 1});
  CHECK(cache.size() == 1);

  auto changed = group;
  changed[1].request.shape = {5};
  CHECK(cache.find(changed) == nullptr);
  CHECK(bits_of(cache, changed) == std::vector{CacheBit{7}});
  const auto others = group_of({"a", "b"});
  CHECK(cache.find(others) == nullptr);
  CHECK(bits_of(cache, others) == std::vector{CacheBit{7}});
  CHECK(bits_of(cache, group_of({"x", "y"})).empty());

  CHECK(cache.erase(CacheBit{7}));
  CHECK(cache.find(group) == nullptr);
  CHECK(bits_of(cache, group).empty());
}

TEST_CASE("WorkerCache refuses a response that its bit does not stand for", "[unit][response_cache]") {
  const auto group = group_of({"a", "b"});
  wire::Request alone;
  alone.name = "c";
  WorkerCache cache;
  CHECK_FALSE(cache.insert(response(7, alone), group[0].request));
  REQUIRE(cache.insert(response(7, group[0].request), group[0].request, 0));
  CHECK_FALSE(cache.insert(response(7, alone), alone));
  REQUIRE(cache.insert(response(7, group[1].request), group[1].request, 1));
  CHECK_FALSE(cache.insert(response(7, group[1].request), group[1].request, 1));
  CHECK_FALSE(cache.insert(response(8, group[1].request), group[1].request, 1));
}

TEST_CASE("WorkerCache forgets an evicted bit and its name", "[unit][response_cache]") {
  wire::Request request;
  request.name = "a";
  WorkerCache cache;
  REQUIRE(cache.insert(response(7, request), request));
  CHECK(cache.erase(CacheBit{7}));
  CHECK_FALSE(cache.erase(CacheBit{7}));
  CHECK(cache.find(CacheBit{7}) == nullptr);
  CHECK(cache.find(std::vector{OwnRequest{request}}) == nullptr);
  CHECK(bits_of(cache, {{request}}).empty());
  CHECK(cache.size() == 0);
}

}  // namespace
}  // namespace hvd::negotiation
