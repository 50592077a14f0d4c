#include "runtime/collectives/cuda/pack_plan.h"

#include <catch2/catch.hpp>

namespace hvd::collectives::cuda {

namespace {

using Copies = std::vector<std::tuple<std::size_t, void*, std::size_t>>;

Copies of(const std::vector<PackPlan::Copy>& copies) {
  Copies out;
  for (const auto& [offset, tensor, bytes] : copies) out.emplace_back(offset, tensor, bytes);
  return out;
}

void* at(int address) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

CollectiveCall call_of(OpType op, std::vector<Segment> tensors) {
  CollectiveCall call;
  call.op = op;
  call.segments = std::move(tensors);
  call.memory = MemoryKind::kDevice;
  call.use.device = 1;
  return call;
}

}  // namespace

TEST_CASE("Tensors of a reduction lie side by side, and zeros stand for those of a joined rank", "[unit][gpu]") {
  const auto call = call_of(OpType::kAllreduce, {{at(100), at(200), 3}, {nullptr, nullptr, 2}, {nullptr, at(300), 1}});
  const PackPlan plan = plan_packing(call, 2, 0);
  CHECK(of(plan.in) == Copies{{0, at(100), 12}, {12, nullptr, 8}, {20, at(300), 4}});
  CHECK(of(plan.out) == Copies{{0, at(200), 12}, {20, at(300), 4}});
  CHECK(plan.bytes == 24);
  const CollectiveCall packed = plan.at(at(4096));
  CHECK(packed.count == 6);
  CHECK(packed.input == nullptr);
  CHECK(packed.output == at(4096));
  CHECK(packed.memory == MemoryKind::kHost);
  CHECK(packed.use.device == kCpuDevice);
  CHECK(packed.segments.empty());
  CHECK(plan_packing(call_of(OpType::kAdasum, call.segments), 2, 0).call.tensor_counts ==
        std::vector<std::int64_t>{3, 2, 1});
}

TEST_CASE("A reduction is one of pieces, which may end inside tensors; Adasum is one piece", "[unit][gpu]") {
  const auto call = call_of(OpType::kAllreduce, {{at(100), at(200), 3}, {nullptr, nullptr, 2}, {nullptr, at(300), 1}});
  const PackPlan plan = plan_packing(call, 2, 0);
  const std::vector<PackPlan> pieces = plan.pieces(16);
  REQUIRE(pieces.size() == 2);
  CHECK(of(pieces[0].in) == Copies{{0, at(100), 12}, {12, nullptr, 4}});
  CHECK(of(pieces[0].out) == Copies{{0, at(200), 12}});
  CHECK(of(pieces[1].in) == Copies{{16, nullptr, 4}, {20, at(300), 4}});
  CHECK(of(pieces[1].out) == Copies{{20, at(300), 4}});
  CHECK(pieces[0].at(at(4096)).count == 4);
  CHECK(pieces[1].at(at(4096)).count == 2);
  CHECK(pieces[1].at(at(4096)).output == at(4096 + 16));
  CHECK(of(plan.pieces(8)[1].in) == Copies{{8, at(108), 4}, {12, nullptr, 4}});
  CHECK(plan.pieces(24).size() == 1);
  CHECK(plan_packing(call_of(OpType::kAdasum, call.segments), 2, 0).pieces(4).size() == 1);
}

TEST_CASE("A piece of a gather or a scatter has a slice of each rank's part, side by side", "[unit][gpu]") {
  // On rank 1: parts of 4 and 3 elements, packed as the next test has it.
  const std::vector<Segment> tensors = {{at(100), at(200), 2, {1, 2}}, {at(300), at(400), 1, {3, 1}}};
  const auto gather = plan_packing(call_of(OpType::kAllgather, tensors), 2, 1).pieces(20);
  REQUIRE(gather.size() == 2);
  CHECK(gather[0].call.rank_counts == std::vector<std::int64_t>{2, 2});
  CHECK(of(gather[0].in) == Copies{{8, at(100), 8}});
  CHECK(of(gather[0].out) == Copies{{0, at(200), 4}, {4, at(400), 4}, {8, at(204), 8}});
  CHECK(gather[0].at(at(4096)).count == 2);
  CHECK(gather[0].at(at(4096)).input == at(4096 + 8));
  CHECK(gather[1].call.rank_counts == std::vector<std::int64_t>{2, 1});
  CHECK(of(gather[1].in) == Copies{{24, at(300), 4}});
  CHECK(of(gather[1].out) == Copies{{16, at(404), 8}, {24, at(412), 4}});
  CHECK(gather[1].at(at(4096)).count == 1);
  CHECK(gather[1].at(at(4096)).input == at(4096 + 24));
  CHECK(gather[1].at(at(4096)).output == at(4096 + 16));

  const auto scatter = plan_packing(call_of(OpType::kReducescatter, tensors), 2, 1).pieces(20);
  REQUIRE(scatter.size() == 2);
  CHECK(of(scatter[0].in) == Copies{{0, at(100), 4}, {4, at(300), 4}, {8, at(104), 8}});
  CHECK(of(scatter[0].out) == Copies{{8, at(200), 8}});
  CHECK(of(scatter[1].in) == Copies{{16, at(304), 8}, {24, at(312), 4}});
  CHECK(of(scatter[1].out) == Copies{{24, at(400), 4}});
  CHECK(scatter[1].call.rank_counts == std::vector<std::int64_t>{2, 1});
  CHECK(scatter[1].at(at(4096)).input == at(4096 + 16));
  CHECK(scatter[1].at(at(4096)).output == at(4096 + 24));
  // Zeros of a rank that has joined.
  const auto joined = plan_packing(call_of(OpType::kReducescatter, {{nullptr, nullptr, 2, {1, 2}}}), 2, 1).pieces(8);
  CHECK(of(joined[1].in) == Copies{{8, nullptr, 4}});
}

TEST_CASE("Members of an alltoall make as many pieces as the one that sends most", "[unit][gpu]") {
  CollectiveCall call;
  call.op = OpType::kAlltoall;
  call.input = at(100);
  call.output = at(200);
  call.rank_counts = {1, 2};
  call.receive_counts = {5, 0};
  call.most_sent = 7;
  const auto pieces = plan_packing(call, 2, 0).pieces(16);
  REQUIRE(pieces.size() == 2);
  CHECK(of(pieces[0].in) == Copies{{0, at(100), 4}, {4, at(104), 4}});
  CHECK(of(pieces[0].out) == Copies{{64, at(200), 12}});
  CHECK(pieces[0].call.rank_counts == std::vector<std::int64_t>{1, 1});
  CHECK(pieces[0].call.receive_counts == std::vector<std::int64_t>{3, 0});
  CHECK(of(pieces[1].in) == Copies{{8, at(108), 4}});
  CHECK(of(pieces[1].out) == Copies{{76, at(212), 8}});
  CHECK(pieces[1].call.rank_counts == std::vector<std::int64_t>{0, 1});
  CHECK(pieces[1].at(at(4096)).input == at(4096 + 8));
  CHECK(pieces[1].at(at(4096)).output == at(4096 + 76));
}

TEST_CASE("What is gathered and scattered lies rank by rank, and in a rank tensor by tensor", "[unit][gpu]") {
  const std::vector<Segment> tensors = {{at(100), at(200), 2, {1, 2}}, {at(300), at(400), 1, {3, 1}}};
  const PackPlan gather = plan_packing(call_of(OpType::kAllgather, tensors), 2, 1);
  CHECK(of(gather.in) == Copies{{16, at(100), 8}, {24, at(300), 4}});
  CHECK(of(gather.out) == Copies{{0, at(200), 4}, {4, at(400), 12}, {16, at(204), 8}, {24, at(412), 4}});
  const CollectiveCall gathered = gather.at(at(4096));
  CHECK(gathered.rank_counts == std::vector<std::int64_t>{4, 3});
  CHECK(gathered.count == 3);
  CHECK(gathered.input == at(4096 + 16));
  CHECK(gathered.output == at(4096));

  const PackPlan scatter = plan_packing(call_of(OpType::kReducescatter, tensors), 2, 1);
  CHECK(of(scatter.in) == Copies{{0, at(100), 4}, {4, at(300), 12}, {16, at(104), 8}, {24, at(312), 4}});
  CHECK(of(scatter.out) == Copies{{16, at(200), 8}, {24, at(400), 4}});
  const CollectiveCall scattered = scatter.at(at(4096));
  CHECK(scattered.input == at(4096));
  CHECK(scattered.output == at(4096 + 16));
  CHECK(scattered.rank_counts == std::vector<std::int64_t>{4, 3});
}

TEST_CASE("A broadcast comes in at its root only, and an alltoall's two sides lie apart", "[unit][gpu]") {
  CollectiveCall call;
  call.op = OpType::kBroadcast;
  call.input = at(100);
  call.output = at(200);
  call.count = 5;
  call.root = 1;
  CHECK(of(plan_packing(call, 2, 1).in) == Copies{{0, at(100), 20}});
  CHECK(of(plan_packing(call, 2, 1).out) == Copies{{0, at(200), 20}});
  CHECK(of(plan_packing(call, 2, 0).out) == Copies{{0, at(200), 20}});
  CHECK(plan_packing(call, 2, 0).in.empty());
  call.input = call.output;
  CHECK(plan_packing(call, 2, 1).out.empty());

  call.op = OpType::kAlltoall;
  call.input = at(100);
  call.rank_counts = {1, 2};
  call.receive_counts = {5, 0};
  const PackPlan plan = plan_packing(call, 2, 0);
  CHECK(of(plan.in) == Copies{{0, at(100), 12}});
  CHECK(of(plan.out) == Copies{{64, at(200), 20}});
  CHECK(plan.bytes == 84);
  CHECK(plan.at(at(4096)).output == at(4096 + 64));
}

}  // namespace hvd::collectives::cuda
