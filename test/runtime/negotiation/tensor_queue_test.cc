#include <catch2/catch.hpp>

#include "runtime/negotiation/group_table.h"
#include "runtime/negotiation/tensor_queue.h"
#include "runtime/wire/limits.h"

namespace hvd::negotiation {
namespace {

using Catch::Contains;

Submission submission(const std::string& name, std::int32_t set = kGlobalProcessSet) {
  static std::uint64_t next = 1;
  Submission s;
  s.request.name = name;
  s.request.process_set = set;
  s.request.shape = {2, 3};
  s.entry = EntryId{next++};
  return s;
}

TensorQueue queue_of_rank_1() {
  topology::ProcessSetTable sets(4);
  sets.add({0, 2});  // 1
  sets.add({1, 3});  // 2
  return {1, sets};
}

void check_refused(const Status& status, const std::string& text) {
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(status.message(), Contains(text));
}

TEST_CASE("TensorQueue refuses a second pending operation of the same name in the same set", "[unit][negotiation]") {
  TensorQueue queue = queue_of_rank_1();
  CHECK(queue.add({submission("a")}).is_ok());
  check_refused(queue.add({submission("a")}), "\"a\" is pending already");
  Submission other_kind = submission("a");
  other_kind.request.op = OpType::kBarrier;
  check_refused(queue.add({other_kind}), "\"a\" is pending already");
  CHECK(queue.add({submission("a", 2)}).is_ok());
  CHECK(queue.fetch().size() == 2);
  check_refused(queue.add({submission("a")}), "pending already");  // fetched is still pending
  queue.complete(kGlobalProcessSet, "a");
  CHECK(queue.add({submission("a")}).is_ok());
  CHECK(queue.pending() == 2);
}

TEST_CASE("TensorQueue refuses sets that do not exist and sets of others", "[unit][negotiation]") {
  TensorQueue queue = queue_of_rank_1();
  check_refused(queue.add({submission("a", 7)}), "process set 7 is not registered");
  check_refused(queue.add({submission("a", 1)}), "rank 1 is not a member of process set 1");
  CHECK(queue.close_set(2).is_ok());
  check_refused(queue.add({submission("a", 2)}), "process set 2 is not registered");
  check_refused(queue.close_set(2), "process set 2");
  check_refused(queue.close_set(0), "global");
  queue.open_set({2, 9, {0, 1}});
  CHECK(queue.add({submission("a", 2)}).is_ok());
}

TEST_CASE("TensorQueue refuses names, shapes and roots that make no sense", "[unit][negotiation]") {
  TensorQueue queue = queue_of_rank_1();
  check_refused(queue.add({submission("")}), "has 0 bytes");
  check_refused(queue.add({submission(std::string(wire::kMaxNameBytes + 1, 'x'))}), "4097 bytes");
  CHECK(queue.add({submission(std::string(wire::kMaxNameBytes, 'x'))}).is_ok());
  Submission s = submission("negative");
  s.request.shape = {3, -1};
  check_refused(queue.add({s}), "[3, -1]");
  s.request.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40, 0};
  check_refused(queue.add({s}), "impossible shape");
  s.request.shape.assign(256, 1);
  check_refused(queue.add({s}), "256 dimensions");
  Submission broadcast = submission("b", 2);
  broadcast.request.op = OpType::kBroadcast;
  broadcast.request.root_rank = 2;
  check_refused(queue.add({broadcast}), "root rank 2 is not in process set 2");
  broadcast.request.root_rank = 3;
  CHECK(queue.add({broadcast}).is_ok());
}

TEST_CASE("TensorQueue takes a group whole or not at all, and keys it by its names", "[unit][negotiation]") {
  TensorQueue queue = queue_of_rank_1();
  check_refused(queue.add({submission("a"), submission("b"), submission("a")}), "occurs twice");
  check_refused(queue.add({submission("a"), submission("b", 2)}), "different process sets: 0 and 2");
  CHECK(queue.pending() == 0);
  CHECK(queue.fetch().empty());
  REQUIRE(queue.add({submission("a"), submission("b")}).is_ok());
  const auto fetched = queue.fetch();
  REQUIRE(fetched.size() == 2);
  CHECK(fetched[0].request.rank == 1);
  CHECK(fetched[0].request.group_size == 2);
  CHECK(fetched[0].request.group_key == fetched[1].request.group_key);
  CHECK(fetched[0].request.group_key != 0);
  check_refused(queue.add({submission("c"), submission("b")}), "\"b\" is pending already");
  CHECK(queue.pending() == 2);
}

TEST_CASE("TensorQueue makes a group of one only when asked to", "[unit][negotiation]") {
  TensorQueue queue = queue_of_rank_1();
  Submission alone = submission("b");
  alone.request.group_size = 1;
  REQUIRE(queue.add({submission("a")}).is_ok());
  REQUIRE(queue.add({alone}).is_ok());
  const auto fetched = queue.fetch();
  CHECK(fetched[0].request.group_key == 0);
  CHECK(fetched[0].request.group_size == 0);
  CHECK(fetched[1].request.group_key != 0);
  CHECK(fetched[1].request.group_size == 1);
}

TEST_CASE("TensorQueue allows one join at a time and keeps it apart from tensors named join", "[unit][negotiation]") {
  TensorQueue queue = queue_of_rank_1();
  CHECK(queue.add({submission("join")}).is_ok());
  CHECK(queue.add_join(kGlobalProcessSet, EntryId{5}).is_ok());
  check_refused(queue.add_join(kGlobalProcessSet, EntryId{6}), "join is pending");
  check_refused(queue.add_join(1, EntryId{6}), "not a member");
  CHECK(queue.pending() == 2);
  queue.complete_join(kGlobalProcessSet);
  CHECK(queue.add_join(kGlobalProcessSet, EntryId{7}).is_ok());
}

TEST_CASE("group_key tells groups apart by their names and boundaries", "[unit][negotiation]") {
  const auto key = [](std::vector<std::string> names) { return group_key(names); };
  CHECK(key({"a", "b"}) == key({"a", "b"}));
  CHECK(key({"ab"}) != key({"a", "b"}));
  CHECK(key({"a", "b"}) != key({"b", "a"}));
  CHECK(key({}) != 0);
}

}  // namespace
}  // namespace hvd::negotiation
