// How waits in shared memory end.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <future>

#include "runtime/base/deadline.h"
#include "runtime/collectives/shm/rounds.h"
#include "test/runtime/collectives/shm/shm_ranks.h"

namespace hvd::collectives {
namespace {

constexpr std::chrono::seconds kLongest{20};
constexpr std::int64_t kDirect = 5000;  // elements, more than every member reduces by itself

CollectiveCall sum_of(std::vector<float>& data) {
  return {.op = OpType::kAllreduce, .output = data.data(), .count = static_cast<std::int64_t>(data.size())};
}

// Until the backend reports that it waits for others.
PeerProgress wait_of(const ShmBackend& backend) {
  const Deadline patience = Deadline::after(kLongest);
  PeerProgress now;
  while (now.waits_for.empty() && !patience.expired()) {
    std::this_thread::yield();
    now = backend.progress();
  }
  return now;
}

TEST_CASE("An abort ends a wait in shared memory with its reason, and every later call", "[multi][collectives]") {
  const std::size_t count = GENERATE(1U, 5000U, 1000000U);
  const ShmRanks ranks(3);
  const auto alone = ranks.backend(ranks.all(), 0);
  std::vector<float> data(count);
  auto call = std::async(std::launch::async, [&] { return run_call(*alone, sum_of(data)); });
  const PeerProgress waiting = wait_of(*alone);
  CHECK(waiting.waits_for == std::vector<int>{1, 2});
  CHECK(alone->progress() == waiting);
  alone->abort(Status::peer_lost("rank 1 on host b is gone"));
  alone->abort(Status::aborted("a later reason"));
  REQUIRE(call.wait_for(kLongest) == std::future_status::ready);
  CHECK(call.get().to_string() == Status::peer_lost("rank 1 on host b is gone").to_string());
  CHECK(run_call(*alone, sum_of(data)).message() == "rank 1 on host b is gone");
}

TEST_CASE("A backend aborted before its first call does nothing", "[unit][collectives]") {
  const ShmRanks ranks(2);
  const auto alone = ranks.backend(ranks.all(), 0);
  alone->abort(Status::aborted("shut down"));
  std::vector<float> data(3, 1.0F);
  CHECK(run_call(*alone, sum_of(data)).to_string() == "aborted: shut down");
  CHECK(run_call(*alone, {.op = OpType::kBarrier}).to_string() == "aborted: shut down");
  CHECK(data == std::vector<float>(3, 1.0F));
}

TEST_CASE("Aborts that come at any moment of running calls end them", "[multi][collectives]") {
  for (int turn = 0; turn < 50; ++turn) {
    const ShmRanks ranks(2, 1U << 20);
    std::atomic<int> ended{0};
    ranks.run(
        [&](int rank, ShmBackend& backend) {
          std::vector<float> data(static_cast<std::size_t>(turn % 2 == 0 ? 1 : 200000));
          CollectiveCall call = sum_of(data);
          const auto shared = ranks.arena(rank).take(data.size() * sizeof(float));
          if (turn % 4 == 1) call.output = shared.get();
          while (run_call(backend, call).is_ok()) continue;
          ++ended;
        },
        turn);
    CHECK(ended == 2);
  }
}

// Rank 1 of two, driven by hand through a direct allreduce: what it has left in shared memory.
class ByHand {
 public:
  explicit ByHand(const ShmRanks& ranks) : segment_(ranks.segment()), region_(segment_.region(0)) {}
  void announce() {
    const std::uint64_t place = segment_.offset_of(segment_.arena(1).data(), 4 * kDirect).value();
    std::memcpy(region_.slot(1, 1), &place, sizeof(place));
    line().announced = 1;
    line().marks[Rounds::kStaged] = 1;
  }
  void leave() { line().has_left = 1; }
  void mark_reduced() { line().marks[Rounds::kReduced] = 1; }
  bool has_other_left() const { return region_.lines[0].has_left == 1; }

 private:
  ShmLine& line() const { return region_.lines[1]; }
  const ShmSegment& segment_;
  const ShmRegion region_;
};

TEST_CASE("No direct allreduce ends well that may have read tensors of a rank whose call failed",
          "[multi][collectives]") {
  const ShmRanks ranks(2, 1U << 20);
  const auto backend = ranks.backend(ranks.all(), 0);
  const auto shared = ranks.arena(0).take(4 * kDirect);
  ByHand other(ranks);
  other.announce();
  other.leave();
  other.mark_reduced();
  auto call = std::async(std::launch::async, [&] {
    return run_call(*backend, {.op = OpType::kAllreduce, .output = shared.get(), .count = kDirect});
  });
  CHECK(wait_of(*backend).waits_for == std::vector<int>{1});
  CHECK_FALSE(other.has_other_left());
  backend->abort(Status::peer_lost("rank 1 is gone"));
  REQUIRE(call.wait_for(kLongest) == std::future_status::ready);
  CHECK(call.get().message() == "rank 1 is gone");
  CHECK(other.has_other_left());
}

TEST_CASE("Late members are slept for, and rung awake", "[multi][collectives]") {
  // Each round one member comes late, later than anybody polls.
  const ShmRanks ranks(3);
  std::vector<int> wrong(3);
  ranks.run([&](int rank, ShmBackend& backend) {
    for (int turn = 0; turn < 12; ++turn) {
      if (turn % 3 == rank) {
        const Deadline late = Deadline::after(Millis(2));
        while (!late.expired()) std::this_thread::yield();
      }
      std::vector<float> data(static_cast<std::size_t>(turn % 2 == 0 ? 3 : 100000), 1.0F);
      if (!run_call(backend, sum_of(data)).is_ok()) ++wrong[static_cast<std::size_t>(rank)];
      if (std::count(data.begin(), data.end(), 3.0F) != std::ssize(data)) ++wrong[static_cast<std::size_t>(rank)];
    }
  });
  CHECK(wrong == std::vector<int>(3));
}

}  // namespace
}  // namespace hvd::collectives
