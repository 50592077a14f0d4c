// What one rank finds out by itself about operations, and what becomes of them when sets come and go.
#include "runtime/engine/operation_table.h"

#include <array>
#include <catch2/catch.hpp>

#include "runtime/wire/codec.h"

namespace hvd::engine {
namespace {

using Catch::Contains;

topology::ProcessSets sets_of_four() {
  topology::ProcessSetTable sets(4);
  REQUIRE(sets.insert({1, 1, {0, 2}}).is_ok());
  REQUIRE(sets.insert({2, 2, {1, 3}}).is_ok());
  return std::make_shared<const topology::ProcessSetTable>(sets);
}

// The table of rank 1 among four, in sets 0 and 2 and not in 1.
struct Fixture {
  Operation operation(const std::string& name, std::int32_t set = kGlobalProcessSet) {
    Operation op;
    op.name = name;
    op.process_set = set;
    op.input = {data.data(), {2, 3}, DataType::kFloat32, kCpuDevice};
    op.output = data.data();
    return op;
  }
  Operation join(std::int32_t set = kGlobalProcessSet) {
    Operation op;
    op.op = OpType::kJoin;
    op.name = "join";
    op.process_set = set;
    return op;
  }
  void check_refused(const Operation& op, const std::string& text) {
    check_refused(table.add(Operation(op)).status(), text);
  }
  void check_refused(const Status& status, const std::string& text) {
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(status.message(), Contains(text));
  }
  void complete_all() {
    for (const auto& own : table.fetch()) table.complete(own.operation, Status::ok());
  }

  std::array<float, 6> data{};
  recorder::FlightRecorder recorder;
  OperationTable table{1, sets_of_four(), recorder};
};

TEST_CASE_METHOD(Fixture, "A name is pending once in its set until its operation is complete", "[engine]") {
  CHECK(table.add(operation("a")).is_ok());
  check_refused(operation("a"), "\"a\" is pending already");
  Operation other_kind = operation("a");
  other_kind.op = OpType::kBarrier;
  check_refused(other_kind, "\"a\" is pending already");
  CHECK(table.add(operation("a", 2)).is_ok());
  check_refused(operation("a", 2), "\"a\" of process set 2 is pending already");
  const auto fetched = table.fetch();
  REQUIRE(fetched.size() == 2);
  CHECK(fetched[0].request.rank == 1);
  check_refused(operation("a"), "pending already");  // fetched is still pending
  table.complete(fetched[0].operation, Status::ok());
  CHECK(table.add(operation("a")).is_ok());
  CHECK(table.pending() == std::vector<std::string>{"a", "a"});
}

TEST_CASE_METHOD(Fixture, "Sets that do not exist, sets of others and closed ones take no operations", "[engine]") {
  check_refused(operation("a", 7), "process set 7 is not registered");
  check_refused(operation("a", 1), "rank 1 is not a member of process set 1");
  CHECK(table.close_set(2).is_ok());
  check_refused(operation("a", 2), "process set 2 is not registered");
  check_refused(table.close_set(2), "process set 2");
  check_refused(table.close_set(0), "global");
}

TEST_CASE_METHOD(Fixture, "Names, shapes and roots that make no sense are refused", "[engine]") {
  check_refused(operation(""), "has 0 bytes");
  check_refused(operation(std::string(wire::kMaxNameBytes + 1, 'x')), "4097 bytes");
  CHECK(table.add(operation(std::string(wire::kMaxNameBytes, 'x'))).is_ok());
  Operation op = operation("negative");
  op.input.shape = {3, -1};
  check_refused(op, "[3, -1]");
  op.input.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40, 0};
  check_refused(op, "impossible shape");
  op.input.shape.assign(256, 1);
  check_refused(op, "256 dimensions");
  Operation broadcast = operation("b", 2);
  broadcast.op = OpType::kBroadcast;
  broadcast.root_rank = 2;
  check_refused(broadcast, "root rank 2 is not in process set 2");
  broadcast.root_rank = 3;
  CHECK(table.add(std::move(broadcast)).is_ok());
}

TEST_CASE_METHOD(Fixture, "A group is taken whole or not at all, and keyed by its names", "[engine]") {
  check_refused(table.add_group({}).status(), "an empty group");
  check_refused(table.add_group({operation("a"), operation("b"), operation("a")}).status(), "occurs twice");
  check_refused(table.add_group({operation("a"), operation("b", 2)}).status(), "different process sets: 0 and 2");
  CHECK(table.empty());
  REQUIRE(table.add_group({operation("a"), operation("b")}).is_ok());
  check_refused(table.add_group({operation("c"), operation("b")}).status(), "\"b\" is pending already");
  REQUIRE(table.add_group({operation("c")}).is_ok());  // and "c" is free
  CHECK(table.pending().size() == 3);
  const auto fetched = table.fetch();
  REQUIRE(fetched.size() == 3);
  CHECK(fetched[0].request.group_size == 2);
  CHECK(fetched[0].request.group_key == fetched[1].request.group_key);
  CHECK(fetched[0].request.group_key != 0);
  CHECK(fetched[2].request.group_key == 0);  // alone, it is no group
  CHECK(fetched[2].request.group_size == 0);
}

TEST_CASE_METHOD(Fixture, "Each member of a group gives back what it uses when it completes", "[engine]") {
  const auto member = [&](const std::string& name, const std::shared_ptr<int>& memory) {
    Operation op = operation(name);
    op.keep_alive = memory;
    return op;
  };
  auto first = std::make_shared<int>();
  auto second = std::make_shared<int>();
  REQUIRE_FALSE(table.add_group({member("a", first), member("a", second)}).is_ok());
  CHECK((first.use_count() == 1 && second.use_count() == 1));
  std::vector<HandlePtr> handles = table.add_group({member("a", first), member("b", second)}).value();
  const auto fetched = table.fetch();
  table.complete(fetched.at(0).operation, Status::ok());
  CHECK((first.use_count() == 1 && second.use_count() == 2));
  CHECK((handles[0]->done() && !handles[1]->done()));
  table.complete(fetched.at(1).operation, Status::aborted("it is over"));
  CHECK(second.use_count() == 1);
  handles.erase(handles.begin());  // the other one holds by itself
  CHECK(handles[0]->status().message() == "it is over");
}

TEST_CASE_METHOD(Fixture, "One join is pending in a set at a time, apart from tensors named join", "[engine]") {
  CHECK(table.add(operation("join")).is_ok());
  CHECK(table.add(join()).is_ok());
  check_refused(join(), "a join is pending already");
  check_refused(join(1), "not a member");
  CHECK(table.add(join(2)).is_ok());
  CHECK(table.pending().size() == 3);
  complete_all();
  CHECK(table.add(join()).is_ok());
  CHECK(table.joins() == 1);
}

TEST_CASE_METHOD(Fixture, "What is pending in a removed set completes without touching the next set of its id",
                 "[engine]") {
  const topology::ProcessSets before = table.sets();
  const HandlePtr old = table.add(operation("a", 2)).value();
  const auto id = table.fetch().at(0).operation;
  CHECK(table.close_set(2).is_ok());
  topology::ProcessSetTable next = *before;
  REQUIRE(next.remove(2).is_ok());
  table.publish(std::make_shared<const topology::ProcessSetTable>(next));
  check_refused(operation("a", 2), "process set 2 is not registered");
  REQUIRE(next.insert({2, 9, {0, 1}}).is_ok());
  table.publish(std::make_shared<const topology::ProcessSetTable>(next));
  CHECK(table.add(operation("a", 2)).is_ok());  // a name of the new set
  table.complete(id, Status::ok());
  CHECK(old->done());
  check_refused(operation("a", 2), "\"a\" of process set 2 is pending already");
  CHECK(before->find(2)->context_id == 2);  // who has the old table reads it undisturbed
  CHECK(table.sets()->find(2)->context_id == 9);
}

TEST_CASE("A rank waits while something is submitted that has not started, once for all", "[engine]") {
  const TimePoint start;
  WorkTally tally(start);
  tally.submitted(start);
  tally.submitted(start + Millis(1));
  tally.started(1, start + Millis(3));
  tally.started(0, start + Millis(4));
  tally.started(1, start + Millis(5));
  CHECK(tally.work(start + Millis(6)).waited_us == 5000);
  tally.submitted(start + Millis(100));
  tally.started(1, start + Millis(107));
  CHECK(tally.work(start + Millis(200)) ==
        rendezvous::RankWork{.collectives = 0, .bytes = 0, .waited_us = 12000, .session_us = 200'000});
}

TEST_CASE_METHOD(Fixture, "What has ended well is counted, with its bytes", "[engine]") {
  const auto done = [this] {
    rendezvous::RankWork work = table.work();
    work.waited_us = work.session_us = 0;
    return work;
  };
  CHECK(table.add(operation("a")).is_ok());
  CHECK(table.add(operation("b", 2)).is_ok());
  CHECK(table.add(join()).is_ok());
  CHECK(done() == rendezvous::RankWork());
  complete_all();
  CHECK(done() == rendezvous::RankWork{.collectives = 2, .bytes = 2 * sizeof(data), .waited_us = 0, .session_us = 0});
  CHECK(table.add(operation("a")).is_ok());
  table.close(Status::aborted("the end"));
  CHECK(done().collectives == 2);
}

}  // namespace
}  // namespace hvd::engine
