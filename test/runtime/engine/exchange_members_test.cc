// What each of two members does with what it knows and submits, without a session: nothing happens but what a test
// does.
#include <catch2/catch.hpp>

#include "test/runtime/engine/exchange_members.h"

using namespace hvd;
using namespace hvd::test;

namespace {
using Values = std::vector<float>;
}

TEST_CASE("A rank that ends leaves no use to be completed by another that comes later", "[unit][engine]") {
  const bool has_come = GENERATE(true, false);
  Two ranks;
  ranks.learn("x", 1);
  Values left(3, 1.0F);
  Values late(3, 1.0F);
  HandlePtr first;
  if (has_come) first = ranks.a.add("x", left);
  ranks.a.end();
  const HandlePtr second = ranks.b.add("x", late);
  CHECK_FALSE(second->done());
  CHECK(ranks.b.table.fetch().size() == 1);
  if (has_come) CHECK(first->status().code() == StatusCode::kAborted);
  CHECK(late == Values(3, 1.0F));
}

TEST_CASE("A use that another has sealed goes the ordinary way, also where no thread waits for it", "[unit][engine]") {
  Two two;
  two.learn("x", 1);
  Values ours(3, 1.0F);
  Values theirs(3, 1.0F);
  const HandlePtr handle = two.a.add("x", ours);
  two.a.small->give_up_sealed();
  CHECK(two.a.table.fetch().empty());
  two.b.small->leave(kGlobalProcessSet);
  const HandlePtr other = two.b.add("x", theirs);
  two.a.small->give_up_sealed();
  CHECK(two.a.table.fetch().size() == 1);
  CHECK(two.b.table.fetch().size() == 1);
}

TEST_CASE("A use that is complete when a rank ends is complete on both", "[unit][engine]") {
  Two ranks;
  ranks.learn("x", 1);
  Values left(3, 1.0F);
  Values right(3, 2.0F);
  const HandlePtr first = ranks.a.add("x", left);
  const HandlePtr second = ranks.b.add("x", right);
  CHECK(second->done());
  ranks.b.end();
  ranks.a.end();
  CHECK(first->status().to_string() == "ok");
  CHECK((left == Values(3, 3.0F) && right == left));
}

TEST_CASE("A group may have a name that is free because all have come", "[unit][engine]") {
  Two ranks;
  ranks.learn("x", 1);
  Values data(3, 1.0F);
  Values others(3, 1.0F);
  const HandlePtr first = ranks.a.add("x", data);
  ranks.b.add("x", others);
  Values again(3, 1.0F);
  CHECK(ranks.a.small->add_group({allreduce("x", again), allreduce("y", others)}).status().to_string() == "ok");
  CHECK(data == Values(3, 2.0F));
  CHECK(first->done());
}

TEST_CASE("A group may have such a name also when another one was seen to be free", "[unit][engine]") {
  Two ranks;
  ranks.learn("x", 1);
  ranks.learn("z", 2);
  Values x(3, 1.0F);
  Values z(3, 1.0F);
  Values others_x(3, 1.0F);
  Values others_z(3, 1.0F);
  ranks.a.add("x", x);
  const HandlePtr seen = ranks.a.add("z", z);
  ranks.b.add("x", others_x);
  ranks.b.add("z", others_z);
  CHECK(seen->done());
  Values again(3, 1.0F);
  CHECK(ranks.a.small->add_group({allreduce("x", again)}).status().to_string() == "ok");
  CHECK(x == Values(3, 2.0F));
}

TEST_CASE("Names that are used once take no slot", "[unit][engine]") {
  Two ranks;
  std::uint64_t bit = 1;
  for (std::size_t i = 0; i < ranks.a.slots->slots() + 10; ++i) {
    for (Member* const member : {&ranks.a, &ranks.b}) {
      member->learn(response_of("noname." + std::to_string(i), bit, 3));
      if (i % 2 == 0) member->learn(wire::Evict{wire::CacheBit{bit}});
    }
    ++bit;
  }
  ranks.learn("x", bit);
  Values data(3, 1.0F);
  ranks.a.add("x", data);
  CHECK(ranks.a.table.fetch().empty());
}

TEST_CASE("Large tensors leave half of the slots to small ones", "[unit][engine]") {
  Two ranks;
  std::uint64_t bit = 1;
  const auto is_exchanged = [&](std::int64_t elements) {
    const std::string name = "x" + std::to_string(bit);
    ranks.learn(name, bit++, elements);
    Values data(static_cast<std::size_t>(elements), 1.0F);
    Operation operation = allreduce(name, data);
    operation.is_awaited = true;
    ranks.a.small->add(std::move(operation)).value();
    return ranks.a.table.fetch().empty();
  };
  for (std::size_t i = 0; i < ranks.a.slots->slots() / 2; ++i) ranks.learn("large" + std::to_string(i), bit++, 5000);
  CHECK_FALSE(is_exchanged(5000));
  CHECK(is_exchanged(4096));
  CHECK(is_exchanged(3));
}

TEST_CASE("A tensor that finds no memory to lend goes the ordinary way on both ranks", "[unit][engine]") {
  Two ranks;
  ranks.learn("x", 1, 1000);
  while (!ranks.b.slots->lend(1).empty()) {
  }
  Values data(1000, 1.0F);
  Values others(1000, 1.0F);
  const HandlePtr first = ranks.a.add("x", data);
  CHECK_FALSE(first->done());
  CHECK(ranks.a.table.fetch().empty());
  CHECK_FALSE(ranks.b.add("x", others)->done());
  CHECK(ranks.b.table.fetch().size() == 1);
  CHECK_FALSE(first->done());  // and has looked
  CHECK(ranks.a.table.fetch().size() == 1);
}

TEST_CASE("A place outside of shared memory is an error that ends the session", "[unit][engine]") {
  Two ranks;
  ranks.learn("x", 1, 1000);
  Values data(1000, 1.0F);
  const HandlePtr handle = ranks.a.add("x", data);
  const std::uint64_t nowhere = std::uint64_t{1} << 60;
  ranks.b.slots->come({0, 1, 1}, std::as_bytes(std::span(&nowhere, 1)));
  REQUIRE(handle->done());
  CHECK(handle->status().to_string() == "internal error: a tensor lies outside the memory that ranks share");
  CHECK(ranks.a.failure == handle->status().message());
}

TEST_CASE("What a removed set has cached is nothing of the set that has its id next", "[unit][engine]") {
  const auto sets_with = [](std::uint64_t context, std::vector<int> ranks) {
    topology::ProcessSetTable sets = *topology::initial_sets(3);
    const bool is_added = sets.insert({1, context, std::move(ranks)}).is_ok();
    REQUIRE(is_added);
    return std::make_shared<const topology::ProcessSetTable>(std::move(sets));
  };
  const auto before = sets_with(1, {0, 1});
  const auto after = sets_with(2, {0, 2});
  recorder::FlightRecorder recorder;
  engine::OperationTable table(0, before, recorder);
  std::vector<std::uint64_t> asked;
  const auto small = std::make_shared<engine::SmallExchange>(
      0, table,
      [&](const topology::ProcessSet& set) {
        asked.push_back(set.context_id);
        return nullptr;
      },
      engine::SmallExchange::Engine{[] {}});
  wire::Response response;
  response.process_set = 1;
  response.op = OpType::kAllreduce;
  response.dtype = DataType::kFloat32;
  response.shape = {3};
  response.name = "x";
  response.bit = wire::CacheBit{1};
  wire::Decision decision;
  decision.items.emplace_back(response);  // the same decision removes the set, and adds the next
  small->learn(decision, *before, *after);
  CHECK(asked == std::vector<std::uint64_t>{1});
  small->learn(decision, *after, *after);
  CHECK(asked == std::vector<std::uint64_t>{1, 2});
  small->close();
}
