// Golden scripts of the FusionPlanner: testdata/*.txt.
//   item name=a [op=] [dtype=] [elements=n | rows=1,2 row=n] [reduce=] [prescale=] [postscale=] [set=] [devices=]
//   [group=] plan threshold=n [padding=n] [groups_only]: prints the batches of the items so far and forgets them
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <random>
#include <sstream>

#include "runtime/fusion/fusion_planner.h"
#include "test/support/golden_script.h"

namespace hvd::fusion {
namespace {

using hvd::test::GoldenCommand;

wire::Response make_response(const GoldenCommand& c) {
  wire::Response r;
  r.name = c.text("name", "?");
  r.op = c.one_of<OpType>("op", "allreduce", kOpTypeCount, op_type_name);
  r.dtype = c.one_of<DataType>("dtype", "uint8", kDataTypeCount, data_type_name);
  r.reduce_op = c.one_of<ReduceOp>("reduce", "Sum", kReduceOpCount, reduce_op_name);
  r.shape = {c.number("elements", 1)};
  r.process_set = static_cast<std::int32_t>(c.number("set", 0));
  r.prescale = c.real("prescale", 1);
  r.postscale = c.real("postscale", 1);
  r.devices_key = static_cast<std::uint64_t>(c.number("devices", 0));
  r.on_gpu = r.devices_key != 0;
  r.group_key = static_cast<std::uint64_t>(c.number("group", 0));
  if (r.op == OpType::kAllgather) {
    r.shape = {1, c.number("row", 1)};
    std::istringstream rows(c.text("rows", "1"));
    for (std::string n; std::getline(rows, n, ',');) r.first_dims.push_back(std::stoll(n));
  }
  if (!c.words.empty() && c.words[0] == "error") r.error = StatusCode::kPrecondition;
  return r;
}

std::vector<const wire::Response*> pointers(const std::vector<wire::Response>& responses) {
  std::vector<const wire::Response*> found;
  for (const auto& r : responses) found.push_back(&r);
  return found;
}

class Script {
 public:
  std::string run(const GoldenCommand& c) {
    if (c.name == "item") {
      items_.push_back(make_response(c));
      return "";
    }
    if (c.name == "round") {
      return std::to_string(round_threshold(static_cast<std::uint64_t>(c.number("threshold", 0)),
                                            static_cast<int>(c.number("local_size", 1)),
                                            c.number("homogeneous", 1) == 1)) +
             "\n";
    }
    REQUIRE(c.name == "plan");
    wire::FusionLimits limits;
    limits.threshold = static_cast<std::uint64_t>(c.number("threshold", 100));
    limits.padding = static_cast<std::uint32_t>(c.number("padding", 1));
    limits.groups_only = std::count(c.words.begin(), c.words.end(), "groups_only") > 0;
    std::string text;
    const auto alone = static_cast<std::uint64_t>(c.number("alone", std::numeric_limits<std::int64_t>::max()));
    for (const Batch& batch : plan(pointers(items_), limits, alone)) {
      for (std::size_t i = 0; i < batch.items.size(); ++i) {
        text += (i == 0 ? "" : " ") + items_[batch.items[i]].name;
        if (!batch.offsets.empty()) text += "@" + std::to_string(batch.offsets[i]);
      }
      text += ": " + std::to_string(batch.bytes) + "\n";
    }
    items_.clear();
    return text;
  }

 private:
  std::vector<wire::Response> items_;
};

TEST_CASE("FusionPlanner follows its golden scripts", "[unit][fusion]") {
  for (const auto& path : hvd::test::golden_scripts(std::string(HVD_TEST_SOURCE_DIR) + "/testdata")) {
    DYNAMIC_SECTION(path.stem().string()) {
      Script script;
      hvd::test::run_golden_script(path, [&](const GoldenCommand& command) { return script.run(command); });
    }
  }
}

TEST_CASE("FusionPlanner: the size that runs alone grows with the members", "[unit][fusion]") {
  CHECK(alone_bytes(2) == 1024 * 1024);
  CHECK(alone_bytes(64) == 32 * 1024 * 1024);
}

TEST_CASE("FusionPlanner: every response is in exactly one batch, and batches respect the threshold",
          "[unit][fusion]") {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<wire::Response> items(random() % 40);
    for (auto& r : items) {
      r.op = static_cast<OpType>(random() % kOpTypeCount);
      r.dtype = random() % 3 == 0 ? DataType::kFloat16 : DataType::kFloat32;
      r.shape = {static_cast<std::int64_t>(random() % 50)};
      r.prescale = random() % 4 == 0 ? 2 : 1;
      if (r.op == OpType::kAllgather) r.first_dims = {3, static_cast<std::int64_t>(random() % 9)};
    }
    wire::FusionLimits limits;
    limits.threshold = random() % 400;
    limits.padding = random() % 2 == 0 ? 1 : 16;
    const auto batches = plan(pointers(items), limits);
    std::vector<int> seen(items.size());
    for (const Batch& batch : batches) {
      REQUIRE(std::is_sorted(batch.items.begin(), batch.items.end()));
      for (const std::size_t i : batch.items) {
        ++seen[i];
        REQUIRE(items[i].op == items[batch.items[0]].op);
        REQUIRE(items[i].dtype == items[batch.items[0]].dtype);
      }
      if (batch.items.size() == 1) continue;
      REQUIRE(batch.bytes <= limits.threshold);
      for (const std::uint64_t offset : batch.offsets) REQUIRE(offset % limits.padding == 0);
    }
    REQUIRE(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
    REQUIRE(std::is_sorted(batches.begin(), batches.end(),
                           [](const Batch& a, const Batch& b) { return a.items[0] < b.items[0]; }));
  }
}

}  // namespace
}  // namespace hvd::fusion
