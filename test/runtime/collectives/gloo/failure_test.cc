#include <catch2/catch.hpp>

#include <future>

#include "test/runtime/collectives/gloo/rank_threads.h"

namespace hvd::collectives {
namespace {

// Rank 0 makes `call` and the others only build the context with a first barrier; then the test's thread aborts rank 0.
struct AbortOutcome {
  Status first;
  Status second;
};

AbortOutcome abort_rank_zero(int size, const CollectiveCall& call) {
  AbortOutcome outcome;
  std::promise<GlooBackend*> waiting;
  std::promise<void> aborted_twice;
  std::promise<void> finished;
  std::shared_future<void> finish = finished.get_future().share();
  const std::jthread aborter = start_thread("aborter", [&](const std::stop_token&) {
    GlooBackend* backend = waiting.get_future().get();
    backend->abort(Status::peer_lost("rank 1 on host b is gone"));
    backend->abort(Status::aborted("a later reason"));
    aborted_twice.set_value();
  });
  run_ranks(size, [&](int rank, GlooBackend& backend) {
    if (!run_call(backend, {.op = OpType::kBarrier}).is_ok()) return;
    if (rank != 0) return finish.wait();
    waiting.set_value(&backend);
    outcome.first = run_call(backend, call);
    outcome.second = run_call(backend, {.op = OpType::kBarrier});
    // The first abort may end both calls before the second has come: whoever aborts keeps the backend, as the engine
    // does.
    aborted_twice.get_future().wait();
    finished.set_value();
  });
  return outcome;
}

TEST_CASE("Abort from another thread makes the running call fail with its reason", "[multi][collectives]") {
  const int size = GENERATE(2, 3, 5);
  std::vector<float> data(GENERATE(1U, 5000U, 1000000U));
  const OpType op = GENERATE(OpType::kAllreduce, OpType::kBroadcast, OpType::kBarrier, OpType::kAllgather,
                             OpType::kAlltoall, OpType::kReducescatter, OpType::kAdasum);
  CollectiveCall call{.op = op, .output = data.data(), .count = static_cast<std::int64_t>(data.size()), .root = 1};
  std::vector<float> whole(data.size() * static_cast<std::size_t>(size));
  std::vector<float> other(whole.size());
  call.tensor_counts = {call.count};
  call.rank_counts.assign(static_cast<std::size_t>(size), call.count);
  call.receive_counts = call.rank_counts;
  if (op == OpType::kAllgather) {
    call.input = data.data();
    call.output = whole.data();
  } else if (op == OpType::kReducescatter) {
    call.input = whole.data();
  } else if (op == OpType::kAlltoall) {
    call.input = whole.data();
    call.output = other.data();
  }
  INFO(size << " ranks, " << op_type_name(op) << " of " << data.size());
  const AbortOutcome outcome = abort_rank_zero(size, call);
  CHECK(outcome.first.code() == StatusCode::kPeerLost);
  CHECK(outcome.first.message() == "rank 1 on host b is gone");
  CHECK(outcome.second.message() == "rank 1 on host b is gone");
}

TEST_CASE("An alltoall connects to whom it exchanges something with first, and fails where it cannot",
          "[multi][collectives]") {
  const test::FabricGroup fabrics = loopback_fabrics(4);
  std::vector<transport::ExpectedMessage> asked;
  GlooBackend backend({.make = contexts_of(fabrics.of(2), all_of(4)).make,
                       .connect = [&](std::span<const transport::ExpectedMessage> messages) {
                         asked.assign(messages.begin(), messages.end());
                         return Status::peer_lost("rank 1 is gone");
                       }});
  const std::vector<std::uint8_t> in(9);
  std::vector<std::uint8_t> out(9);
  CollectiveCall call{.op = OpType::kAlltoall, .dtype = DataType::kUint8, .input = in.data(), .output = out.data()};
  call.rank_counts = {0, 5, 1, 3};
  call.receive_counts = {0, 7, 1, 0};
  CHECK(run_call(backend, call).message() == "alltoall: rank 1 is gone");
  REQUIRE(asked.size() == 2);
  CHECK((asked[0].peer == 1 && asked[0].bytes == 7));
  CHECK((asked[1].peer == 3 && asked[1].bytes == 3));
}

TEST_CASE("Counts that do not fit the ranks are an error, not a wait", "[multi][collectives]") {
  std::vector<Status> results(4);
  run_ranks(2, [&](int rank, GlooBackend& backend) {
    float x = 1;
    float y = 1;
    const OpType op = rank == 0 ? OpType::kAlltoall : OpType::kReducescatter;
    CollectiveCall call{.op = op, .input = &x, .output = &y, .rank_counts = {1}, .receive_counts = {1}};
    results[static_cast<std::size_t>(rank)] = run_call(backend, call);
  });
  CHECK(results[0].code() == StatusCode::kInternal);
  CHECK_THAT(results[0].message(), Catch::Contains("1 counts for 2 ranks"));
  CHECK_THAT(results[1].message(), Catch::Contains("1 counts for 2 ranks"));
}

TEST_CASE("A backend aborted before its first call never makes a context", "[multi][collectives]") {
  bool made = false;
  GlooBackend backend({[&]() -> Result<std::shared_ptr<gloo::Context>> {
    made = true;
    return Status::internal("unexpected");
  }});
  backend.abort(Status::aborted("shut down"));
  CHECK(run_call(backend, {.op = OpType::kBarrier}).to_string() == "aborted: shut down");
  CHECK_FALSE(made);
}

}  // namespace
}  // namespace hvd::collectives
