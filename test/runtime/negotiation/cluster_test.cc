// The parts of negotiation together: what travels, and what happens when ranks fail.
#include "test/runtime/negotiation/cluster.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <optional>

#include "runtime/wire/codec.h"

namespace hvd::negotiation::test {
namespace {

using Catch::Contains;

TEST_CASE("Cluster: repeated steps send bits and no text", "[unit][negotiation]") {
  Cluster cluster(job_of(4));
  run_step(cluster, 100);
  const std::size_t first_up = cluster.bytes_up();
  const std::size_t first_down = cluster.bytes_down();
  CHECK(first_up > 3 * 100 * 25);
  run_step(cluster, 100);
  const std::size_t up = cluster.bytes_up() - first_up;
  const std::size_t down = cluster.bytes_down() - first_down;
  // Three links, at most one report of one run each way; a decision may be split in as many as releases in flight.
  CHECK(up <= 3 * 54);
  CHECK(down <= 3 * 3 * 60);
}

// Every rank submits its value of `name`; those in `without` do not show it.
void submit_values(Cluster& cluster, const wire::Request& request, std::vector<int> without = {}) {
  for (int rank = 0; rank < cluster.size(); ++rank) {
    OwnRequest own{request, new_operation(), cluster.keep({rank + 1})};
    if (std::find(without.begin(), without.end(), rank) != without.end()) own.input = nullptr;
    REQUIRE(cluster.node(rank).queue.add({own}).is_ok());
  }
}

// What all ranks got for it; nullopt: it was run.
std::optional<std::int64_t> settle_value(Cluster& cluster) {
  cluster.settle();
  std::vector<std::string> elements;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    const auto log = cluster.take_log(rank);
    REQUIRE(log.size() == 1);
    elements.push_back(log.front().elements);
    CHECK(elements.back() == elements.front());
    CHECK(cluster.node(rank).queue.pending() == 0);
  }
  if (elements.front().empty()) return std::nullopt;
  std::int64_t value = 0;
  REQUIRE(elements.front().size() == sizeof(value));
  std::memcpy(&value, elements.front().data(), sizeof(value));
  return value;
}

TEST_CASE("Cluster: a small cached tensor is reduced by the tree once all bring it along", "[unit][negotiation]") {
  Cluster cluster(job_of(7));
  wire::Request request;
  request.name = "loss";
  request.dtype = DataType::kInt64;
  request.shape = {1};
  const auto step = [&](std::vector<int> without = {}) {
    submit_values(cluster, request, std::move(without));
    return settle_value(cluster);
  };
  CHECK(step() == std::nullopt);  // not cached
  CHECK(step() == 28);
  CHECK(step({0}) == std::nullopt);
  CHECK(step({6}) == std::nullopt);  // a leaf
  CHECK(step() == 28);               // nothing is left of what was brought in vain
  request.reduce_op = ReduceOp::kMax;
  CHECK(step() == std::nullopt);  // it changed
  CHECK(step() == 7);
  request.prescale = 2;
  CHECK(step() == std::nullopt);
  CHECK(step() == 14);
  request.reduce_op = ReduceOp::kAverage;  // a sum; the engine divides it
  step();
  CHECK(step() == 56);
}

TEST_CASE("Cluster: what is not small, or whose order would show, is run", "[unit][negotiation]") {
  wire::Request request;
  request.name = "x";
  request.dtype = DataType::kInt64;
  const auto reduced = [&](int size, const WorkerOptions& options) {
    Cluster cluster(job_of(size), options);
    std::size_t bytes = 0;
    for (int i = 0; i < 3; ++i) {
      for (int rank = 0; rank < size; ++rank) {
        const auto n = static_cast<std::size_t>(num_elements(request.shape));
        const void* input = cluster.keep(std::vector<std::int64_t>(n + 1));
        REQUIRE(cluster.node(rank).queue.add({{request, new_operation(), input}}).is_ok());
      }
      cluster.settle();
      for (const auto& op : cluster.take_log(size - 1)) bytes += op.elements.size();
    }
    return bytes;
  };
  request.shape = {32};
  CHECK(reduced(3, {}) == 2 * 256);
  WorkerOptions deterministic;
  deterministic.max_members_in_tree = 2;
  CHECK(reduced(3, deterministic) == 0);
  CHECK(reduced(2, deterministic) == 2 * 256);
  request.shape = {33};
  CHECK(reduced(3, {}) == 0);
  request.shape = {0};
  CHECK(reduced(3, {}) == 0);
  request.shape = {1LL << 31, 0};
  CHECK(reduced(3, {}) == 0);
  request.shape = {4};
  request.device = 0;
  CHECK(reduced(3, {}) == 0);
}

TEST_CASE("Cluster: elements beyond a report's room stay behind", "[unit][negotiation]") {
  Cluster cluster(job_of(3));
  std::size_t reduced = 0;
  for (int i = 0; i < 2; ++i) {
    for (int rank = 0; rank < 3; ++rank) {
      for (int k = 0; k < 400; ++k) {
        wire::Request request;
        request.name = std::to_string(k);
        request.dtype = DataType::kInt64;
        request.shape = {32};
        const void* input = cluster.keep(std::vector<std::int64_t>(32, rank));
        REQUIRE(cluster.node(rank).queue.add({{request, new_operation(), input}}).is_ok());
      }
    }
    cluster.settle();
    for (const auto& op : cluster.take_log(2)) reduced += op.elements.size();
  }
  CHECK(reduced > wire::kMaxReportElements / 2);
  CHECK(reduced <= wire::kMaxReportElements);
}

TEST_CASE("Cluster: elements of another size than the tensor's end the session", "[unit][negotiation]") {
  Cluster cluster(job_of(2));
  wire::Request request;
  request.name = "loss";
  request.dtype = DataType::kInt64;
  request.shape = {1};
  submit_values(cluster, request);
  cluster.settle();
  wire::Report report;
  report.ready_tensors = {{wire::CacheBit{1}, "four"}};
  CHECK_THAT(cluster.coordinator().add_report(1, report, cluster.now()).message(),
             Contains("4 bytes of elements for bit 1, expected 8"));
  report.ready_tensors = {{wire::CacheBit{9}, "four"}};  // evicted on the way
  CHECK(cluster.coordinator().add_report(1, report, cluster.now()).is_ok());
  wire::Decision decision;
  decision.sequence = cluster.node(1).worker.last_sequence() + 1;
  decision.items = {wire::CacheHit{wire::CacheBit{1}, "four"}};
  CHECK_THAT(cluster.node(1).worker.on_decision(decision).status().message(),
             Contains("a result of 4 bytes, expected 8"));
}

TEST_CASE("Cluster: nothing is sent when nothing changes", "[unit][negotiation]") {
  Cluster cluster(job_of(7));
  run_step(cluster, 3);
  const std::size_t before = cluster.messages();
  cluster.advance(std::chrono::hours(10));
  cluster.settle();
  CHECK(cluster.messages() == before);
  CHECK_FALSE(cluster.coordinator().next_deadline());
}

TEST_CASE("Cluster: a world of one rank needs no messages", "[unit][negotiation]") {
  Cluster cluster(job_of(1));
  run_step(cluster, 10);
  run_step(cluster, 10);
  CHECK(cluster.messages() == 0);
}

TEST_CASE("Cluster: an interior rank forwards a bit only when its whole subtree is ready", "[unit][negotiation]") {
  Cluster cluster(job_of(7));  // 1 has the children 3 and 4
  run_step(cluster, 1);
  const std::string name = "layer.with.a.long.name.0";
  for (const int rank : {0, 1, 2, 3, 5, 6}) submit(cluster, rank, name);
  cluster.settle();
  CHECK(cluster.node(0).log.empty());
  submit(cluster, 4, name);
  cluster.settle();
  for (int rank = 0; rank < 7; ++rank) CHECK(cluster.node(rank).log.size() == 1);
}

TEST_CASE("Cluster: what becomes ready while a release is on its way leaves together", "[unit][negotiation]") {
  CoordinatorOptions options = job_of(1);
  options.max_in_flight = 1;
  Cluster cluster(options);
  submit(cluster, 0, "a");
  REQUIRE(cluster.work(0));
  for (const char* name : {"b", "c", "d"}) {
    submit(cluster, 0, name);
    cluster.work(0);
  }
  auto& lane = cluster.node(0).lanes[0];
  CHECK(lane.size() == 1);
  REQUIRE(cluster.execute(0, 0));  // "a" is done
  REQUIRE(cluster.work(0));
  CHECK(lane.size() == 3);
  CHECK(cluster.node(0).releases[0].size() == 1);
}

TEST_CASE("Cluster: the loss of any rank reaches every other rank and names it", "[unit][negotiation]") {
  for (int victim = 0; victim < 7; ++victim) {
    Cluster cluster(job_of(7));
    run_step(cluster, 2);
    for (int rank = 0; rank < 7; ++rank) {
      if (rank != 4) submit(cluster, rank, "pending");
    }
    cluster.settle();
    cluster.kill(victim, "connection reset");
    cluster.settle();
    for (int rank = 0; rank < 7; ++rank) {
      if (rank == victim) continue;
      INFO("victim " << victim << ", rank " << rank);
      REQUIRE(cluster.node(rank).stop);
      CHECK(cluster.node(rank).stop->rank == victim);
      CHECK_THAT(cluster.node(rank).stop->message,
                 Contains("rank " + std::to_string(victim) + " is lost: connection reset"));
      if (rank == 4) continue;
      REQUIRE(cluster.node(rank).failed.size() == 1);
      CHECK(cluster.node(rank).failed[0].status.code() == StatusCode::kPeerLost);
    }
  }
}

TEST_CASE("Cluster: one rank's shutdown ends the session everywhere, after what is ready", "[unit][negotiation]") {
  Cluster cluster(job_of(5));
  for (int rank = 0; rank < 5; ++rank) submit(cluster, rank, "ready");
  for (int rank = 0; rank < 4; ++rank) submit(cluster, rank, "never");
  cluster.node(3).worker.request_shutdown();
  cluster.settle();
  for (int rank = 0; rank < 5; ++rank) {
    INFO("rank " << rank);
    REQUIRE(cluster.node(rank).stop);
    CHECK(cluster.node(rank).stop->kind == wire::Stop::Kind::kShutdown);
    CHECK(cluster.node(rank).stop->rank == 3);
    CHECK(cluster.node(rank).log.size() == 1);
    CHECK(cluster.node(rank).failed.size() == (rank == 4 ? 0u : 1u));
    submit(cluster, rank, "late");
    cluster.work(rank);
    REQUIRE_FALSE(cluster.node(rank).failed.empty());
    CHECK(cluster.node(rank).failed.back().status.code() == StatusCode::kAborted);
  }
}

TEST_CASE("Cluster: a cached tensor that one rank never submits is reported as stalled", "[unit][negotiation]") {
  CoordinatorOptions options = job_of(3);
  options.stall.check_time = Millis(1000);
  WorkerOptions worker;
  worker.cached_wait_limit = Millis(1000);
  Cluster cluster(options, worker);
  run_step(cluster, 1);
  for (const int rank : {0, 1}) submit(cluster, rank, "layer.with.a.long.name.0");
  cluster.settle();
  CHECK_FALSE(cluster.coordinator().next_deadline());  // rank 0 does not see bits that are not complete
  cluster.advance(std::chrono::milliseconds(1000));
  cluster.settle();
  cluster.advance(std::chrono::milliseconds(1000));
  cluster.settle();
  const auto notes = cluster.coordinator().take_notes();
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0].text, Contains("rank 2: [layer.with.a.long.name.0]"));
  submit(cluster, 2, "layer.with.a.long.name.0");
  cluster.settle();
  for (int rank = 0; rank < 3; ++rank) CHECK(cluster.node(rank).log.size() == 1);
}

TEST_CASE("Cluster: a report for ranks that are not below its sender is refused", "[unit][negotiation]") {
  const topology::TreePlan plan(7, 2);
  Relay relay(plan, 1, topology::ProcessSetTable(7));
  wire::Report report;
  wire::Request request;
  request.name = "a";
  request.rank = 4;
  report.requests.emplace_back(request);
  const TimePoint now{std::chrono::hours(1)};
  CHECK_THAT(relay.add_report(3, report, now).message(), Contains("rank 3 reported for rank 4"));
  CHECK_THAT(relay.add_report(2, report, now).message(), Contains("rank 2, which is not below rank 1"));
  CHECK_FALSE(relay.next_deadline());
  CHECK(relay.add_report(4, report, now).is_ok());
  CHECK(relay.next_deadline());
  report.requests.back().ranks = {{4, 2, 0}};
  CHECK_THAT(relay.add_report(4, report, now).message(), Contains("rank 4 reported for rank 4"));
  report.requests.back().ranks = {{4, 1, 0}};
  CHECK_THAT(relay.add_report(4, report, now).message(), Contains("reported \"a\" twice"));
}

TEST_CASE("Cluster: reports larger than the budget are split and lose nothing", "[unit][negotiation]") {
  Cluster cluster(job_of(3, 8));
  constexpr int kCount = 6000;  // 3000 bytes of name each: three messages
  for (int rank = 0; rank < 3; ++rank) {
    for (int i = 0; i < kCount; ++i) submit(cluster, rank, std::string(3000, 'n') + std::to_string(i));
    REQUIRE(cluster.node(rank).queue.add_join(kGlobalProcessSet, new_operation()).is_ok());
  }
  cluster.settle();
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(cluster.node(rank).log.size() == kCount + 1);
    CHECK(cluster.node(rank).log.back().op == OpType::kJoin);
  }
  CHECK(cluster.messages() > 2 * 3);
}

TEST_CASE("Cluster: equal requests of many ranks travel as one", "[unit][negotiation]") {
  constexpr std::size_t kCount = 50;
  constexpr std::size_t kLinks = 39;
  Cluster cluster(job_of(40, 3));
  run_step(cluster, static_cast<int>(kCount));
  // A request of 25 bytes of name takes 110 bytes and 8 for each level of the tree below.
  CHECK(cluster.bytes_up() <= kLinks * (40 + kCount * 150));
}

TEST_CASE("Cluster: joins of many ranks travel together, one alone waits for a moment", "[unit][negotiation]") {
  Cluster cluster(job_of(40, 3));
  run_step(cluster, 1);
  std::size_t before = cluster.messages();
  const auto join = [&](int rank) {
    REQUIRE(cluster.node(rank).queue.add_join(kGlobalProcessSet, new_operation()).is_ok());
  };
  for (int rank = 0; rank < 40; ++rank) join(rank);
  cluster.settle();
  CHECK(cluster.messages() - before == 2 * 39);  // up and down each link
  for (int rank = 0; rank < 40; ++rank) CHECK(cluster.take_log(rank).size() == 1);

  before = cluster.messages();
  join(39);  // three levels down
  cluster.settle();
  CHECK(cluster.messages() - before == 1);  // what it heads, which is itself alone, has joined
  for (const std::size_t messages : {2U, 3U, 3U}) {
    cluster.advance(Relay::kJoinHold);
    cluster.settle();
    CHECK(cluster.messages() - before == messages);
  }
  for (int rank = 0; rank < 39; ++rank) submit(cluster, rank, "layer.with.a.long.name.0");
  cluster.settle();
  for (int rank = 0; rank < 40; ++rank) CHECK(cluster.take_log(rank).size() == 1);
}

TEST_CASE("Cluster: a tensor that one rank deep in the tree never submits is known to the root",
          "[unit][negotiation]") {
  CoordinatorOptions options = job_of(15);
  options.stall.check_time = Millis(1000);
  Cluster cluster(options);
  for (int rank = 0; rank < 15; ++rank) {
    if (rank != 8) submit(cluster, rank, "a");  // below 3, below 1
  }
  for (int level = 0; level < 3; ++level) {
    cluster.settle();
    cluster.advance(RequestMerger::kHold);
  }
  cluster.settle();
  REQUIRE(cluster.coordinator().next_deadline());
  cluster.advance(std::chrono::milliseconds(1000));
  cluster.settle();
  const auto notes = cluster.coordinator().take_notes();
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0].text, Catch::EndsWith("\nrank 8: [a]"));
  submit(cluster, 8, "a");
  cluster.settle();  // whoever completes a subtree waits nowhere
  for (int rank = 0; rank < 15; ++rank) CHECK(cluster.take_log(rank).size() == 1);
}

}  // namespace
}  // namespace hvd::negotiation::test
