#include "runtime/negotiation/set_registry.h"

#include <catch2/catch.hpp>

namespace hvd::negotiation {
namespace {

using wire::SetChange;

wire::SetDecision decide(SetRegistry& registry, SetChange change) {
  wire::MergedChange merged(std::move(change));
  merged.ranks = {{0, registry.sets()->world_size(), 0}};
  registry.add(merged, TimePoint{});
  const auto decision = registry.next();
  REQUIRE(decision);
  return *decision;
}

std::int32_t add(SetRegistry& registry, std::vector<int> ranks) {
  SetChange change;
  change.rank_lists = {std::move(ranks)};
  return decide(registry, change).entries.at(0).id;
}

Status remove(SetRegistry& registry, std::int32_t id) {
  SetChange change;
  change.kind = SetChange::Kind::kRemove;
  change.set_id = id;
  const wire::SetDecision decision = decide(registry, change);
  return decision.error == StatusCode::kOk ? Status::ok() : Status(decision.error, decision.error_message);
}

TEST_CASE("Freed ids of process sets are used again oldest first, context ids never", "[unit][negotiation]") {
  SetRegistry registry(4);
  CHECK(add(registry, {0, 1}) == 1);
  CHECK(add(registry, {1, 2}) == 2);
  CHECK(add(registry, {3, 2}) == 3);
  CHECK(remove(registry, 2).is_ok());
  CHECK(remove(registry, 1).is_ok());
  CHECK(remove(registry, 1).code() == StatusCode::kInvalidArgument);
  CHECK(remove(registry, 0).code() == StatusCode::kInvalidArgument);
  CHECK(add(registry, {0, 3}) == 2);
  CHECK(registry.sets()->find(2)->context_id == 4);
  CHECK(add(registry, {0, 2}) == 1);
  CHECK(add(registry, {0, 1, 2}) == 4);
}

TEST_CASE("A table of process sets is made anew only by a change that changes it", "[unit][negotiation]") {
  SetRegistry registry(4);
  CHECK(add(registry, {0, 1}) == 1);
  const topology::ProcessSets sets = registry.sets();
  CHECK(add(registry, {1, 0}) == 1);  // exists already
  CHECK_FALSE(remove(registry, 5).is_ok());
  SetChange impossible;
  impossible.kind = SetChange::Kind::kStatic;
  impossible.rank_lists = {{2, 3}, {0, 4}};
  const wire::SetDecision refused = decide(registry, impossible);
  CHECK(refused.error == StatusCode::kInvalidArgument);
  CHECK(refused.entries.empty());  // all or none
  CHECK(registry.sets() == sets);
  CHECK(add(registry, {2, 3}) == 2);
  CHECK(registry.sets() != sets);
  CHECK(registry.sets()->share(1) == sets->share(1));
}

}  // namespace
}  // namespace hvd::negotiation
