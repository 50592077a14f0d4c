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

TEST_CASE("The board answers at once whoever asks whether the root is there", "[unit][negotiation]") {
  WaitBoard board(4, {});
  board.add(wait(Wait::Kind::kUndecided, Wait::kNoContext, 2, {0}), kReported);
  board.add(wait(Wait::Kind::kUndecided, Wait::kNoContext, 3, {0}), kReported);
  CHECK(board.take_answers() == std::vector<std::uint64_t>{Wait::kNoContext});
  CHECK(board.take_answers().empty());
  CHECK(board.contexts() == 0);
}

TEST_CASE("A deadlock is told once, also after answers", "[unit][negotiation]") {
  WaitBoard board(2, {});
  const auto all_wait_at = [&](std::uint64_t sequence) {
    for (const int rank : {0, 1}) {
      Wait blocked = wait(Wait::Kind::kSubmitted, 0, rank);
      blocked.turn = sequence;
      board.add(blocked, kReported);
    }
    return board.every_rank_waits(sequence);
  };
  REQUIRE(all_wait_at(1));
  CHECK(board.deadlock().starts_with("Deadlock: "));
  board.only_answers(2);
  CHECK_FALSE(all_wait_at(2));
  board.only_answers(3);
  CHECK_FALSE(all_wait_at(3));
  CHECK(all_wait_at(4));  // something else was decided
  board.only_answers(5);  // nobody was told of it at 4
  CHECK(all_wait_at(5));
}

TEST_CASE("Who waits in vain for a decision is told for whom", "[unit][negotiation]") {
  Wait undecided = wait(Wait::Kind::kUndecided, Wait::kNoContext, 9, {0});
  CHECK(stuck_text(undecided) ==
        "allreduce \"x\" has not begun for 20 s: rank 9 waits for rank 0, which decides what runs and does not answer "
        "(is its process or host stopped?)");
  undecided.peers = {0, 1};
  undecided.history = "rank 9: none";
  CHECK(
      stuck_text(undecided) ==
      "allreduce \"x\" has not begun for 20 s: rank 9 waits for ranks 0, 1, which decide what runs, or pass it on, and "
      "do not answer (are their processes or hosts stopped?). Last operations of rank 9: none");
}

}  // namespace
}  // namespace hvd::negotiation
