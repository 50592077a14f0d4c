// Groups: what travels of them once they are cached, and when that ends.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/wire/codec.h"
#include "test/runtime/negotiation/cluster.h"

namespace hvd::negotiation::test {
namespace {

// Every rank submits a group of these names, and has an int64 of its own for each: 10 * its place + its rank.
void submit_group(Cluster& cluster, int rank, const std::vector<std::string>& names, const Shape& shape = {1}) {
  std::vector<OwnRequest> group;
  for (std::size_t i = 0; i < names.size(); ++i) {
    OwnRequest own;
    own.request.name = names[i];
    own.request.dtype = DataType::kInt64;
    own.request.shape = shape;
    own.operation = new_operation();
    own.input = cluster.keep(std::vector<std::int64_t>(static_cast<std::size_t>(num_elements(shape)),
                                                       static_cast<std::int64_t>(i) * 10 + rank));
    group.push_back(std::move(own));
  }
  REQUIRE(cluster.node(rank).queue.add(std::move(group)).is_ok());
}

void step(Cluster& cluster, const std::vector<std::string>& names, const Shape& shape = {1}) {
  for (int rank = 0; rank < cluster.size(); ++rank) submit_group(cluster, rank, names, shape);
  cluster.settle();
}

std::vector<std::string> names_of(std::size_t count, const std::string& prefix = "layer.with.a.long.name.") {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(prefix + std::to_string(i));
  return names;
}

std::vector<std::string> taken_names(Cluster& cluster, int rank) {
  std::vector<std::string> names;
  for (const Cluster::Executed& op : cluster.take_log(rank)) names.push_back(op.name);
  return names;
}

TEST_CASE("Groups: a cached group takes one bit each way, and a place in the cache, however many members it has",
          "[unit][negotiation]") {
  CoordinatorOptions options = job_of(3);
  options.cache_capacity = 1;
  Cluster cluster(options);
  const auto names = names_of(5000);
  step(cluster, names, {100});
  const auto first = taken_names(cluster, 0);
  CHECK(first.size() == names.size());
  const std::size_t up = cluster.bytes_up();
  const std::size_t down = cluster.bytes_down();
  step(cluster, names, {100});
  CHECK((taken_names(cluster, 0) == first));
  CHECK(cluster.bytes_up() - up <= 2 * 54);
  CHECK(cluster.bytes_down() - down <= 2 * 60);
}

TEST_CASE("Groups: each operation gets its own response, whatever the order in which members became ready",
          "[unit][negotiation]") {
  Worker worker(WorkerOptions{}, topology::initial_sets(2));
  std::vector<wire::Request> requests(3);
  std::vector<OwnRequest> group;
  for (std::size_t i = 0; i < 3; ++i) requests[i].name = std::string(1, "abc"[i]);
  wire::make_group(requests);
  const auto submit = [&](std::uint64_t first) {
    group.clear();
    for (std::size_t i = 0; i < 3; ++i) group.push_back({requests[i], OperationId{first + i}});
    REQUIRE(worker.submit(group).empty());
    return worker.take_report(TimePoint{});
  };
  CHECK(submit(1).requests.size() == 3);
  wire::Decision decision;
  decision.sequence = 1;
  for (const std::size_t i : {2u, 0u, 1u}) {
    wire::Response response;
    response.name = requests[i].name;
    response.group_key = requests[i].group_key;
    response.group_size = 3;
    response.bit = wire::CacheBit{4};
    decision.items.emplace_back(response);
  }
  REQUIRE(worker.on_decision(decision).is_ok());
  const wire::Report report = submit(11);
  CHECK(report.requests.empty());
  CHECK(report.ready_bits == std::vector{wire::CacheBit{4}});
  wire::Decision hit;
  hit.sequence = 2;
  hit.items = {wire::CacheHit{wire::CacheBit{4}}};
  const WorkerOutput output = worker.on_decision(hit).value();
  REQUIRE(output.ready.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(output.ready[i].response->name == std::string(1, "cab"[i]));
    CHECK(output.ready[i].operation == OperationId{std::vector<std::uint64_t>{13, 11, 12}[i]});
  }
}

TEST_CASE("Groups: the tree reduces one whose members are small together", "[unit][negotiation]") {
  Cluster cluster(job_of(3));
  const auto sums = [&](const std::vector<std::string>& names, const Shape& shape = {1}) {
    step(cluster, names, shape);
    step(cluster, names, shape);
    std::vector<std::int64_t> found;
    const auto log = cluster.take_log(1);
    for (const Cluster::Executed& op : log) {
      if (op.elements.empty()) continue;
      REQUIRE(op.elements.size() == static_cast<std::size_t>(num_elements(shape)) * 8);
      std::memcpy(&found.emplace_back(), op.elements.data(), 8);
    }
    REQUIRE(log.size() == 2 * names.size());
    return found;
  };
  CHECK(sums({"a", "b", "c"}) == std::vector<std::int64_t>{3, 33, 63});
  CHECK(sums(names_of(32)).size() == 32);  // 256 bytes
  CHECK(sums(names_of(33, "more.")).empty());
  CHECK(sums({"x", "y"}, {17}).empty());
}

TEST_CASE("Groups: a member that is used alone, or in another group, takes the group's bit away at once",
          "[unit][negotiation]") {
  Cluster cluster(job_of(2));
  step(cluster, {"a", "b"});
  step(cluster, {"a", "b"});
  cluster.take_log(0);
  // Rank 1 disagrees, and both learn of it without waiting.
  submit_group(cluster, 0, {"a", "b"});
  submit_group(cluster, 1, {"b", "c"});
  cluster.settle();
  const auto log = cluster.take_log(0);
  REQUIRE(log.size() == 1);
  CHECK(log[0].name == "b");
  CHECK_THAT(log[0].error, Catch::Contains("Mismatched groups"));
  submit(cluster, 0, "c", {1});  // and what else they have pending finds its partner in full
  submit(cluster, 1, "a", {1});
  cluster.settle();
  CHECK(cluster.take_log(0).size() == 2);
}

// Names so long that no decision holds all of them, and one release at a time: rank 1 uses a member anew when it has
// seen the first half.
TEST_CASE("Groups: one that leaves in two decisions may lose its bit between them", "[unit][negotiation]") {
  CoordinatorOptions options = job_of(2);
  options.max_in_flight = 1;
  Cluster cluster(options);
  const auto names = names_of(2200, std::string(4000, 'n'));
  const auto settle_first_half = [&] {
    while (cluster.work(1) || cluster.deliver_up(1) || cluster.work(0)) {
    }
    REQUIRE(cluster.deliver_down(1));
    while (cluster.execute(1, kGlobalProcessSet)) {
    }
    const std::size_t half = taken_names(cluster, 1).size();
    CHECK(half > 1000);
    CHECK(half < 2200);
  };
  for (int rank = 0; rank < 2; ++rank) submit_group(cluster, rank, names);
  settle_first_half();
  CHECK_FALSE(cluster.deliver_down(1));
  SECTION("not used: the bit is whole") {
    cluster.settle();
    cluster.take_log(0);
    const std::size_t up = cluster.bytes_up();
    step(cluster, names);
    CHECK(taken_names(cluster, 0).size() == names.size());
    CHECK(cluster.bytes_up() - up <= 54);
  }
  SECTION("a member of the first half is used alone") {
    submit(cluster, 1, names.front());
    while (cluster.work(1) || cluster.deliver_up(1)) {
    }
    cluster.settle();
    CHECK(cluster.node(0).queue.pending() == 0);
    CHECK(cluster.node(1).queue.pending() == 1);  // it waits for rank 0
    submit(cluster, 0, names.front());
    cluster.settle();
    CHECK(cluster.node(1).queue.pending() == 0);
    cluster.take_log(0);
    step(cluster, names);  // in full, which takes the bit of the single one away
    step(cluster, names);
    CHECK(taken_names(cluster, 0).size() == 2 * names.size());
  }
}

}  // namespace
}  // namespace hvd::negotiation::test
