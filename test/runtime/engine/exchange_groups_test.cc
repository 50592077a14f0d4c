// Groups that callers exchange in shared memory as one tensor.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "test/runtime/engine/exchange_members.h"
#include "test/runtime/engine/job_support.h"

using namespace hvd;
using namespace hvd::test;

namespace {

std::vector<HandlePtr> add(Member& rank, std::vector<GroupMember>& group) {
  return rank.small->add_group(operations_of(group)).value();
}

std::vector<GroupMember> abc(float value) {
  return {{"a", Values(3, value)}, {"b", Values(1, value * 10)}, {"c", Values(5, value * 100)}};
}

// Its responses in another order than that of submission, as they are where its members became ready in another.
std::vector<wire::Response> responses_of(const std::vector<GroupMember>& group, std::uint64_t bit) {
  wire::GroupKey key;
  for (const GroupMember& member : group) key.add(member.name);
  std::vector<wire::Response> responses;
  for (const GroupMember& member : group) {
    responses.push_back(response_of(member.name, bit, static_cast<std::int64_t>(member.data.size())));
    responses.back().group_key = key.value();
    responses.back().group_size = static_cast<std::uint32_t>(group.size());
  }
  std::ranges::rotate(responses, responses.begin() + 1);
  return responses;
}

// Cached under bit 1, and used since.
void learn(Two& ranks, const std::vector<wire::Response>& responses) {
  for (Member* const member : {&ranks.a, &ranks.b}) {
    for (const wire::Response& response : responses) member->learn(response);
    member->learn(wire::CacheHit{responses.front().bit});
  }
}

bool all_done(const std::vector<HandlePtr>& handles) {
  return std::ranges::all_of(handles, [](const HandlePtr& handle) { return handle->done(); });
}

}  // namespace

TEST_CASE("A group is exchanged as one tensor, and each operation gets its own result", "[unit][engine]") {
  Two ranks;
  learn(ranks, responses_of(abc(0), 1));
  for (const float step : {1.0F, 2.0F, 3.0F}) {
    auto left = abc(step);
    auto right = abc(10 * step);
    const auto first = add(ranks.a, left);
    CHECK_FALSE(first[2]->done());
    const auto second = add(ranks.b, right);
    CHECK(all_done(second));
    CHECK(first[1]->done());  // and so are the others
    CHECK((first[0]->is_known_done() && first[2]->is_known_done()));
    CHECK(first[2]->output_shape() == Shape{5});
    CHECK((left[0].data == Values(3, 11 * step) && right[0].data == left[0].data));
    CHECK((left[1].data == Values(1, 110 * step) && right[1].data == left[1].data));
    CHECK((left[2].data == Values(5, 1100 * step) && right[2].data == left[2].data));
  }
  CHECK((ranks.a.table.fetch().empty() && ranks.b.table.fetch().empty()));
  CHECK((ranks.a.table.empty() && ranks.b.table.empty()));
}

TEST_CASE("A group that differs on one rank goes the ordinary way on both, whole", "[unit][engine]") {
  Two ranks;
  learn(ranks, responses_of(abc(0), 1));
  auto left = abc(1);
  auto right = abc(1);
  right[1].data.push_back(1);
  const auto first = add(ranks.a, left);
  const auto second = add(ranks.b, right);
  CHECK_FALSE(all_done(first));  // and has looked
  for (Member* const rank : {&ranks.a, &ranks.b}) {
    const auto fresh = rank->table.fetch();
    REQUIRE(fresh.size() == 3);
    CHECK(fresh[0].request.group_size == 3);
    CHECK(fresh[2].request.name == "c");
  }
}

TEST_CASE("An eviction ends the use of a group, and it is exchanged again when all of it has the next bit",
          "[unit][engine]") {
  Two ranks;
  learn(ranks, responses_of(abc(0), 1));
  // What goes the ordinary way is done by others.
  const auto run_elsewhere = [](Member& rank) {
    const auto fresh = rank.table.fetch();
    for (const auto& own : fresh) rank.table.complete(own.operation, Status::ok());
    return fresh.size();
  };
  auto left = abc(1);
  auto right = abc(1);
  const auto first = add(ranks.a, left);
  for (Member* const rank : {&ranks.a, &ranks.b}) rank->learn(wire::Evict{wire::CacheBit{1}});
  CHECK(run_elsewhere(ranks.a) == 3);
  CHECK(all_done(first));
  const auto again = responses_of(abc(0), 2);
  for (Member* const rank : {&ranks.a, &ranks.b}) {
    for (std::size_t i = 0; i < 2; ++i) rank->learn(again[i]);
  }
  add(ranks.b, right);
  CHECK(run_elsewhere(ranks.b) == 3);
  for (Member* const rank : {&ranks.a, &ranks.b}) rank->learn(again[2]);
  const auto second = add(ranks.a, left);
  CHECK(all_done(add(ranks.b, right)));
  CHECK(all_done(second));
  CHECK((left[2].data == Values(5, 200) && right[2].data == left[2].data));
}

TEST_CASE("What is large or mixed of groups is not exchanged", "[unit][engine]") {
  const auto is_exchanged = [](const std::function<void(std::vector<wire::Response>&, std::vector<Operation>&)>& edit) {
    Two ranks;
    auto group = abc(1);
    auto responses = responses_of(group, 1);  // b, c, a
    auto operations = operations_of(group);
    edit(responses, operations);
    learn(ranks, responses);
    const auto added = ranks.a.small->add_group(std::move(operations));
    REQUIRE(added.is_ok());
    return ranks.a.table.fetch().empty();
  };
  const auto as_it_is = [](auto&, auto&) {};
  CHECK(is_exchanged(as_it_is));
  CHECK_FALSE(is_exchanged([](auto& responses, auto& operations) {
    operations[1].postscale = 2;
    responses[0].postscale = 2;
  }));
  CHECK_FALSE(is_exchanged([](auto& responses, auto& operations) {
    operations[1].reduce_op = ReduceOp::kMax;
    responses[0].reduce_op = ReduceOp::kMax;
  }));
  CHECK_FALSE(is_exchanged([](auto& responses, auto& operations) {
    operations[1].input.dtype = DataType::kInt32;
    responses[0].dtype = DataType::kInt32;
  }));
  CHECK(is_exchanged([](auto&, auto& operations) { operations[2].on_done = [](const Handle&) {}; }));
  Values large(4095);
  CHECK_FALSE(is_exchanged([&](auto& responses, auto& operations) {
    operations[1] = allreduce("b", large);
    responses[0].shape = {4095};
  }));
}

TEST_CASE("A name of a group is free again when all have come, for the group, another one and alone",
          "[unit][engine]") {
  const std::string next_is = GENERATE("the group", "alone", "alone, with a slot", "another group");
  INFO(next_is);
  Two ranks;
  learn(ranks, responses_of(abc(0), 1));
  if (next_is == "alone, with a slot") ranks.learn("b", 2, 1);
  auto left = abc(1);
  auto right = abc(2);
  auto next = abc(1);  // used to the end
  const auto first = add(ranks.a, left);
  add(ranks.b, right);
  if (next_is == "the group") {
    add(ranks.a, next);
  } else if (next_is == "another group") {
    std::swap(next[0], next[1]);
    add(ranks.a, next);
  } else {
    CHECK(ranks.a.small->add(allreduce("b", next[1].data)).status().to_string() == "ok");
  }
  CHECK(left[1].data == Values(1, 30));
  CHECK(first[1]->is_known_done());
}

TEST_CASE("A group that waits when the session ends is the table's to fail", "[unit][engine]") {
  Two ranks;
  learn(ranks, responses_of(abc(0), 1));
  auto left = abc(1);
  const auto first = add(ranks.a, left);
  ranks.a.end();
  for (const HandlePtr& handle : first) {
    REQUIRE(handle->done());
    CHECK(handle->status().code() == StatusCode::kAborted);
  }
}

// The same names alone and in groups, in an order and at a pace of each rank's own; now and then a shape that differs.
TEST_CASE("Groups in random company come out right on every rank", "[multi][engine]") {
  const int size = GENERATE(2, 3);
  const unsigned seed = GENERATE(1U, 2U, 3U);
  INFO("seed " << seed);
  run_job(size, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    std::mt19937 all(seed);  // the same on all ranks
    std::mt19937 own(seed * 1000 + static_cast<unsigned>(rank));
    for (int step = 0; step < 150; ++step) {
      const std::size_t elements = all() % 10 == 0 ? 1 + all() % 40 : 4;
      const bool is_alone = all() % 6 == 0;
      const int odd_one = all() % 15 == 0 ? static_cast<int>(all() % static_cast<unsigned>(size)) : -1;
      std::vector<GroupMember> group;
      for (const char* const name : {"a", "b", "c", "d"}) {
        group.push_back({name, Values(elements, static_cast<float>(rank + step))});
      }
      if (odd_one == rank) group[2].data.resize(elements + 1);
      auto operations = operations_of(group);
      std::vector<HandlePtr> handles;
      if (is_alone) {
        for (Operation& operation : operations) handles.push_back(session.enqueue(std::move(operation)).value());
      } else {
        handles = session.enqueue_group(std::move(operations)).value();
      }
      if (own() % 4 == 0) std::this_thread::yield();
      for (std::size_t i = 0; i < handles.size(); ++i) {
        const Status status = wait(handles[i]);
        if (odd_one >= 0 && i == 2) {
          problems.expect(status.code() == StatusCode::kPrecondition, "shapes that differ: " + status.to_string());
          continue;
        }
        problems.expect_ok(status, group[i].name);
        const auto sum = static_cast<float>(size * step + size * (size - 1) / 2);
        problems.expect(group[i].data == Values(elements, sum), "step " + std::to_string(step) + ": a wrong sum");
      }
    }
  });
}
