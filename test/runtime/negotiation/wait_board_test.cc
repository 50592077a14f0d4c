#include "runtime/negotiation/wait_board.h"

#include <catch2/catch.hpp>

namespace hvd::negotiation {
namespace {

using wire::Wait;

constexpr TimePoint kReported{std::chrono::hours(1)};

Wait wait(Wait::Kind kind, std::uint64_t context, int rank, std::vector<int> peers = {}) {
  Wait w;
  w.kind = kind;
  w.context_id = context;
  w.turn = 1;
  w.name = "x";
  w.millis = 20000;
  w.ranks = {rank};
  w.peers = std::move(peers);
  return w;
}

TEST_CASE("The board forgets a context when nothing that was said of it stands any more", "[unit][negotiation]") {
  WaitBoard board(4, {.check_time = Millis(10000)});
  for (std::uint64_t context = 1; context <= 100; ++context)
    board.add(wait(Wait::Kind::kMoving, context, 2), kReported);
  CHECK(board.contexts() == 100);
  board.look_at_collectives(kReported + Millis(20000));
  CHECK(board.contexts() == 100);  // their ranks may still be at it
  board.add(wait(Wait::Kind::kMoving, 7, 3), kReported + Millis(20500));
  board.look_at_collectives(kReported + Millis(21000));
  CHECK(board.contexts() == 1);
  board.look_at_collectives(kReported + Millis(42000));
  CHECK(board.contexts() == 0);
}

TEST_CASE("A context that does not move is kept as long as its ranks repeat that", "[unit][negotiation]") {
  WaitBoard board(4, {.check_time = Millis(10000)});
  TimePoint now = kReported;
  std::string warnings;
  for (int i = 0; i < 10; ++i, now += Millis(10000)) {
    board.add(wait(Wait::Kind::kRunning, 1, 2, {3}), now);
    warnings += board.look_at_collectives(now + Millis(2000)).warning;
    CHECK(board.contexts() == 1);
  }
  CHECK(warnings.find("rank 2 waits for rank 3") != std::string::npos);
  CHECK(warnings.find("Stalled", 1) == std::string::npos);  // once
  board.look_at_collectives(now + Millis(13000));
  CHECK(board.contexts() == 0);
}

}  // namespace
}  // namespace hvd::negotiation
