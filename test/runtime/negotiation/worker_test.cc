#include "runtime/negotiation/worker.h"

#include <catch2/catch.hpp>

namespace hvd::negotiation {
namespace {

using Catch::Contains;
const TimePoint kStart{std::chrono::hours(1)};

OwnRequest submitted(const std::string& name, std::uint64_t entry) {
  OwnRequest s;
  s.request.name = name;
  s.request.shape = {2};
  s.operation = OperationId{entry};
  return s;
}

OwnRequest join(std::uint64_t entry) {
  OwnRequest s = submitted(wire::kJoinName, entry);
  s.request.op = OpType::kJoin;
  return s;
}

wire::Response response_to(const OwnRequest& s, std::uint64_t bit) {
  wire::Response r;
  r.name = s.request.name;
  r.shape = s.request.shape;
  r.bit = wire::CacheBit{bit};
  return r;
}

wire::Decision decision(std::uint64_t sequence, std::vector<wire::DecisionItem> items) {
  wire::Decision d;
  d.sequence = sequence;
  d.items = std::move(items);
  return d;
}

// A worker of rank 0 of 2 that has "a" cached under bit 1.
Worker worker_with_cached_a(WorkerOptions options = {}) {
  Worker worker(options, topology::initial_sets(2));
  REQUIRE(worker.submit({submitted("a", 1)}).empty());
  REQUIRE(worker.take_report(kStart).requests.size() == 1);
  REQUIRE(worker.on_decision(decision(1, {response_to(submitted("a", 1), 1)})).value().ready.size() == 1);
  return worker;
}

TEST_CASE("Worker reports a cached operation as a bit and nothing when nothing changed", "[unit][negotiation]") {
  Worker worker = worker_with_cached_a();
  CHECK_FALSE(worker.has_report(kStart));
  REQUIRE(worker.submit({submitted("a", 2)}).empty());
  CHECK(worker.has_report(kStart));
  const wire::Report report = worker.take_report(kStart);
  CHECK(report.requests.empty());
  CHECK(report.ready_bits == std::vector<wire::CacheBit>{wire::CacheBit{1}});
  CHECK_FALSE(worker.has_report(kStart));
  const auto out = worker.on_decision(decision(2, {wire::CacheHit{wire::CacheBit{1}}})).value();
  REQUIRE(out.ready.size() == 1);
  CHECK(out.ready[0].operation == OperationId{2});
  CHECK(out.released == std::vector<std::int32_t>{0});
}

TEST_CASE("Worker resubmits in full when its bit is evicted", "[unit][negotiation]") {
  Worker worker = worker_with_cached_a();
  REQUIRE(worker.submit({submitted("a", 2)}).empty());
  REQUIRE(worker.take_report(kStart).ready_bits.size() == 1);
  REQUIRE(worker.on_decision(decision(2, {wire::Evict{wire::CacheBit{1}}})).value().ready.empty());
  const wire::Report report = worker.take_report(kStart);
  REQUIRE(report.requests.size() == 1);
  CHECK(report.requests[0].request.name == "a");
  CHECK(report.stale_bits.empty());
}

TEST_CASE("Worker notes the stale bit when a parameter changed", "[unit][negotiation]") {
  Worker worker = worker_with_cached_a();
  OwnRequest changed = submitted("a", 2);
  changed.request.shape = {3};
  REQUIRE(worker.submit({changed}).empty());
  const wire::Report report = worker.take_report(kStart);
  CHECK(report.stale_bits == std::vector<wire::CacheBit>{wire::CacheBit{1}});
  CHECK(report.requests.size() == 1);
  CHECK(report.ready_bits.empty());
}

TEST_CASE("Worker asks for the eviction of a bit that waits for too long, once", "[unit][negotiation]") {
  WorkerOptions options;
  options.cached_wait_limit = Millis(100);
  Worker worker = worker_with_cached_a(options);
  CHECK_FALSE(worker.next_deadline());
  REQUIRE(worker.submit({submitted("a", 2)}).empty());
  REQUIRE(worker.take_report(kStart).ready_bits.size() == 1);
  CHECK(worker.next_deadline() == kStart + Millis(100));
  CHECK_FALSE(worker.has_report(kStart + Millis(99)));
  CHECK(worker.has_report(kStart + Millis(100)));
  CHECK(worker.take_report(kStart + Millis(100)).stale_bits == std::vector<wire::CacheBit>{wire::CacheBit{1}});
  CHECK_FALSE(worker.has_report(kStart + Millis(500)));
  CHECK_FALSE(worker.next_deadline());

  options.cached_wait_limit = std::nullopt;
  Worker patient = worker_with_cached_a(options);
  REQUIRE(patient.submit({submitted("a", 2)}).empty());
  REQUIRE(patient.take_report(kStart).ready_bits.size() == 1);
  CHECK_FALSE(patient.next_deadline());
}

TEST_CASE("Worker holds operations submitted after its join until the join ends", "[unit][negotiation]") {
  Worker worker = worker_with_cached_a();
  REQUIRE(worker.submit({join(2), submitted("a", 3), submitted("b", 4)}).empty());
  const wire::Report report = worker.take_report(kStart);
  CHECK(report.joins.size() == 1);
  CHECK(report.requests.empty());
  CHECK(report.ready_bits.empty());
  // Others run "a": this rank takes part with zeros, and its own "a" stays.
  const auto zeros = worker.on_decision(decision(2, {wire::CacheHit{wire::CacheBit{1}}})).value();
  REQUIRE(zeros.ready.size() == 1);
  CHECK(zeros.ready[0].operation == OperationId::kNone);
  wire::Response joined = response_to(join(2), 0);
  joined.op = OpType::kJoin;
  joined.root_rank = 1;
  const auto over = worker.on_decision(decision(3, {joined})).value();
  REQUIRE(over.ready.size() == 1);
  CHECK(over.ready[0].operation == OperationId{2});
  const wire::Report after = worker.take_report(kStart);
  CHECK(after.ready_bits.size() == 1);
  CHECK(after.requests.size() == 1);
}

TEST_CASE("Worker settles its outstanding bits before it joins", "[unit][negotiation]") {
  Worker worker = worker_with_cached_a();
  REQUIRE(worker.submit({submitted("a", 2)}).empty());
  REQUIRE(worker.take_report(kStart).ready_bits.size() == 1);
  REQUIRE(worker.submit({join(3)}).empty());
  const wire::Report flush = worker.take_report(kStart);
  CHECK(flush.stale_bits == std::vector<wire::CacheBit>{wire::CacheBit{1}});
  CHECK(flush.joins.empty());
  CHECK_FALSE(worker.has_report(kStart));
  REQUIRE(worker.on_decision(decision(2, {wire::Evict{wire::CacheBit{1}}})).is_ok());
  const wire::Report report = worker.take_report(kStart);
  CHECK(report.requests.size() == 1);
  CHECK(report.joins.size() == 1);
}

TEST_CASE("Worker takes part with zeros where it is listed as joined, and delivers no error there",
          "[unit][negotiation]") {
  Worker worker(WorkerOptions{}, topology::initial_sets(2));
  REQUIRE(worker.submit({join(1)}).empty());
  REQUIRE(worker.take_report(kStart).joins.size() == 1);
  wire::Response response = response_to(submitted("x", 9), 0);
  response.joined = {0};
  auto out = worker.on_decision(decision(1, {response})).value();
  REQUIRE(out.ready.size() == 1);
  CHECK(out.ready[0].operation == OperationId::kNone);
  response.error = StatusCode::kPrecondition;
  out = worker.on_decision(decision(2, {response})).value();
  CHECK(out.ready.empty());
  CHECK(out.released == std::vector<std::int32_t>{0});
}

TEST_CASE("Worker fails everything that is pending when the session stops, and everything later",
          "[unit][negotiation]") {
  Worker worker = worker_with_cached_a();
  REQUIRE(worker.submit({submitted("a", 2), submitted("b", 3)}).empty());
  REQUIRE_FALSE(worker.take_report(kStart).empty());
  REQUIRE(worker.submit({submitted("c", 4), join(5), submitted("d", 6)}).empty());
  wire::Decision stop = decision(2, {});
  stop.stop = wire::Stop{wire::Stop::Kind::kAbort, 1, "rank 1 is lost: killed"};
  const auto out = worker.on_decision(stop).value();
  CHECK(out.failed.size() == 5);
  for (const FailedOperation& failed : out.failed) {
    CHECK(failed.status.code() == StatusCode::kPeerLost);
    CHECK_THAT(failed.status.message(), Contains("rank 1 is lost"));
  }
  CHECK(worker.stopped());
  CHECK_FALSE(worker.has_report(kStart));
  CHECK(worker.submit({submitted("e", 7)}).size() == 1);
  CHECK(worker.fail_all(Status::aborted("again")).empty());
}

TEST_CASE("Worker reports a coordinator that disagrees with it", "[unit][negotiation]") {
  const auto message = [](Worker worker, const wire::Decision& d) { return worker.on_decision(d).status().message(); };
  CHECK_THAT(message(worker_with_cached_a(), decision(3, {})), Contains("decision 3 follows 1"));
  CHECK_THAT(message(worker_with_cached_a(), decision(2, {response_to(submitted("z", 1), 0)})),
             Contains("\"z\" is to run, but was not reported"));
  CHECK_THAT(message(worker_with_cached_a(), decision(2, {wire::CacheHit{wire::CacheBit{1}}})),
             Contains("\"a\" is to run, but was not reported"));
  CHECK_THAT(message(worker_with_cached_a(), decision(2, {wire::CacheHit{wire::CacheBit{2}}})),
             Contains("unknown bit 2"));
  CHECK_THAT(message(worker_with_cached_a(), decision(2, {wire::Evict{wire::CacheBit{2}}})), Contains("unknown bit 2"));
  wire::Response other_set = response_to(submitted("a", 1), 0);
  other_set.process_set = 4;
  CHECK_THAT(message(worker_with_cached_a(), decision(2, {other_set})), Contains("unknown process set 4"));
}

TEST_CASE("Worker sends changes of process sets one by one, and refuses one that no message can hold",
          "[unit][negotiation]") {
  Worker worker(WorkerOptions{}, topology::initial_sets(2));
  wire::SetChange change;
  change.rank_lists = {{0}};
  REQUIRE(worker.request_set_change(change).is_ok());
  change.rank_lists = {{1}};
  REQUIRE(worker.request_set_change(change).is_ok());
  CHECK(worker.take_report(kStart).set_changes.at(0).change.rank_lists[0] == std::vector<int>{0});
  CHECK(worker.has_report(kStart));
  CHECK(worker.take_report(kStart).set_changes.at(0).change.rank_lists[0] == std::vector<int>{1});
  CHECK_FALSE(worker.has_report(kStart));
  change.rank_lists.assign(2, std::vector<int>((1u << 19) + 1));
  CHECK_THAT(worker.request_set_change(change).message(), Contains("1048578 ranks in all"));
}

// A worker of rank 0 of 2 in set 1 = {0}, in which it has "a" cached under bit 1.
Worker worker_in_set_1() {
  Worker worker(WorkerOptions{}, topology::initial_sets(2));
  wire::SetDecision added;
  added.entries.push_back({1, 7, false, {0}});
  OwnRequest a = submitted("a", 1);
  a.request.process_set = 1;
  wire::Response response = response_to(a, 1);
  response.process_set = 1;
  REQUIRE(worker.on_decision(decision(1, {added})).is_ok());
  REQUIRE(worker.submit({a}).empty());
  REQUIRE(worker.take_report(kStart).requests.size() == 1);
  REQUIRE(worker.on_decision(decision(2, {response})).value().ready.size() == 1);
  return worker;
}

TEST_CASE("Worker asks for a removal only when nothing of the set is outstanding as a bit", "[unit][negotiation]") {
  Worker worker = worker_in_set_1();
  OwnRequest again = submitted("a", 2);
  again.request.process_set = 1;
  OwnRequest late = submitted("b", 3);
  late.request.process_set = 1;
  REQUIRE(worker.submit({again}).empty());
  REQUIRE(worker.take_report(kStart).ready_bits.size() == 1);
  REQUIRE(worker.submit({late}).empty());
  wire::SetChange removal;
  removal.kind = wire::SetChange::Kind::kRemove;
  removal.set_id = 1;
  REQUIRE(worker.request_set_change(removal).is_ok());
  wire::Report report = worker.take_report(kStart);
  CHECK(report.stale_bits == std::vector<wire::CacheBit>{wire::CacheBit{1}});
  CHECK(report.requests.size() == 1);  // b
  CHECK(report.set_changes.empty());
  CHECK_FALSE(worker.has_report(kStart));

  REQUIRE(worker.on_decision(decision(3, {wire::Evict{wire::CacheBit{1}}})).is_ok());
  report = worker.take_report(kStart);
  REQUIRE(report.requests.size() == 1);
  CHECK(report.requests[0].request.name == "a");
  CHECK(report.set_changes.size() == 1);

  wire::SetDecision removed;
  removed.kind = wire::SetChange::Kind::kRemove;
  removed.entries.push_back({1, 0, false, {}});
  wire::Response ready = response_to(again, 0);
  ready.process_set = 1;
  const auto out = worker.on_decision(decision(4, {ready, removed})).value();
  REQUIRE(out.ready.size() == 1);
  REQUIRE(out.removed_sets.size() == 1);
  CHECK(out.removed_sets[0]->context_id == 7);
  REQUIRE(out.failed.size() == 1);
  CHECK(out.failed[0].operation == OperationId{3});
  CHECK_THAT(out.failed[0].status.message(), Contains("Process set 1 was removed while \"b\" was pending"));
  CHECK(worker.sets()->find(1) == nullptr);
}

TEST_CASE("Worker refuses a bit of two sets, and one that does not stand for what this rank reported",
          "[unit][negotiation]") {
  Worker worker = worker_in_set_1();
  REQUIRE(worker.submit({submitted("b", 2)}).empty());
  REQUIRE(worker.take_report(kStart).requests.size() == 1);
  CHECK_THAT(worker.on_decision(decision(3, {response_to(submitted("b", 2), 1)})).status().message(),
             Contains("bit 1 is of process set 1 and of process set 0"));

  Worker other = worker_with_cached_a();
  REQUIRE(other.submit({submitted("b", 2)}).empty());
  REQUIRE(other.take_report(kStart).requests.size() == 1);
  CHECK_THAT(other.on_decision(decision(2, {response_to(submitted("b", 2), 1)})).status().message(),
             Contains("bit 1 is not that of \"b\""));
}

TEST_CASE("Worker asks for a shutdown once", "[unit][negotiation]") {
  Worker worker(WorkerOptions{}, topology::initial_sets(2));
  worker.request_shutdown();
  worker.request_shutdown();
  CHECK(worker.take_report(kStart).shutdown_ranks == std::vector<int>{0});
  CHECK_FALSE(worker.has_report(kStart));
}

}  // namespace
}  // namespace hvd::negotiation
