#include "rendezvous/kv/join_table.h"

#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::rendezvous;

namespace {

Nonce nonce_of(int number) {
  Nonce nonce{};
  nonce[0] = static_cast<std::uint8_t>(number);
  return nonce;
}

JoinBody request(int slot, int nonce, std::uint32_t incarnation = 0) {
  const std::string row = "row " + std::to_string(slot);
  return {.seat = {.process = {slot, incarnation}},
          .environment = {},
          .nonce = nonce_of(nonce),
          .row = Bytes(row.begin(), row.end())};
}

std::vector<MemberId> members(const JoinOutcome& outcome) {
  std::vector<MemberId> all;
  for (const auto& [member, numbers] : outcome.joined) all.push_back(member);
  return all;
}

bool waits(const JoinOutcome& outcome) { return outcome.joined.empty() && outcome.refused.empty(); }

// Why the only member that was refused was.
std::string refusal(const JoinOutcome& outcome, MemberId member) {
  REQUIRE(outcome.refused.size() == 1);
  CHECK(outcome.refused[0].first == member);
  return outcome.refused[0].second.message();
}

using Members = std::vector<MemberId>;

// Rounds of whoever waits, when somebody else says so: what an elastic job does. Ranks are the slots from the highest
// down.
struct OpenPlan final : Plan {
  bool begin = false;
  int drained = 7;
  Status problem = Status::ok();
  int max_slots() const override { return 8; }
  Status admit(const Seat& seat, const RankNumbers&) const override {
    return seat.process.slot == drained ? Status::precondition("this slot is drained") : Status::ok();
  }
  Result<Round> decide(const Waiting& waiting) override {
    HVD_RETURN_IF_ERROR(problem);
    Round round;
    if (!begin) return round;
    int rank = static_cast<int>(waiting.size()) - 1;
    for (const auto& [slot, body] : waiting) {
      round[slot] = {.rank = rank--, .size = static_cast<int>(waiting.size())};
    }
    return round;
  }
  std::string describe_missing(const Waiting&, const std::set<int>&) const override { return "it is not time"; }
};

}  // namespace

TEST_CASE("JoinTable begins an epoch with the last slot and numbers the epochs", "[unit][join_table]") {
  JoinTable table(StaticPlan::of_size(2));
  CHECK(waits(table.join(request(1, 1), 11)));
  const JoinOutcome done = table.join(request(0, 3), 10);
  CHECK(done.epoch == 1);
  CHECK(done.retired_epoch == 0);
  CHECK(members(done) == Members{10, 11});
  CHECK(done.joined[1].second == RankNumbers{.rank = 1, .size = 2});
  REQUIRE(done.rows.size() == 2);
  CHECK(as_text(done.rows[0]) == "row 0");
  CHECK(as_text(done.rows[1]) == "row 1");
  CHECK(table.waiting_count() == 0);
  CHECK(table.is_current(1));
  CHECK_FALSE(table.is_current(0));

  CHECK(waits(table.join(request(0, 4), 10)));
  const JoinOutcome next = table.join(request(1, 5), 11);
  CHECK(next.epoch == 2);
  CHECK(next.retired_epoch == 1);
  CHECK(table.is_current(2));
  CHECK_FALSE(table.is_current(1));
}

TEST_CASE("JoinTable counts epochs up from the number it was given, which is none itself", "[unit][join_table]") {
  constexpr std::uint64_t kBefore = UINT64_C(0x7fff'ffff'ffff'0000);
  JoinTable table(StaticPlan::of_size(1), kBefore);
  CHECK_FALSE(table.is_current(kBefore));
  const JoinOutcome first = table.join(request(0, 1), 1);
  CHECK(first.epoch == kBefore + 1);
  CHECK(first.retired_epoch == 0);
  CHECK(table.is_current(kBefore + 1));
  CHECK(table.join(request(0, 2), 1).retired_epoch == kBefore + 1);
}

TEST_CASE("JoinTable gives a retry its epoch and numbers again", "[unit][join_table]") {
  JoinTable table(StaticPlan::of_size(2));
  CHECK(waits(table.join(request(0, 1), 1)));
  CHECK(table.join(request(1, 2), 2).epoch == 1);
  const JoinOutcome again = table.join(request(0, 1), 3);
  CHECK(again.epoch == 1);
  CHECK(members(again) == Members{3});
  CHECK(again.joined[0].second.rank == 0);
  CHECK(again.rows.empty());
  CHECK(waits(table.join(request(0, 9), 3)));      // another nonce is the next round
  CHECK(table.join(request(1, 1), 4).epoch == 2);  // and so is another slot's nonce
}

TEST_CASE("JoinTable says which rank of the epoch joins again while the others have not", "[unit][join_table]") {
  JoinTable table(StaticPlan::of_size(2));
  CHECK_FALSE(table.join(request(0, 1), 10).left);
  CHECK_FALSE(table.join(request(1, 2), 11).left);  // this begins the epoch
  CHECK_FALSE(table.join(request(1, 2), 12).left);  // a retry
  CHECK(table.join(request(1, 3), 13).left == 1);
  const JoinOutcome next = table.join(request(0, 4), 14);
  CHECK(next.epoch == 2);
  CHECK_FALSE(next.left);  // nobody is in the epoch that it left
}

TEST_CASE("JoinTable lets a second process of the same incarnation take the seat", "[unit][join_table]") {
  JoinTable table(StaticPlan::of_size(2));
  CHECK(waits(table.join(request(0, 1), 1)));
  SECTION("another process") {
    JoinBody restarted = request(0, 2);
    restarted.row = {42};
    CHECK_THAT(refusal(table.join(restarted, 2), 1), Catch::Contains("slot 0") && Catch::Contains("another process"));
    const JoinOutcome done = table.join(request(1, 3), 3);
    CHECK(done.rows[0] == Bytes{42});
    CHECK(members(done) == Members{2, 3});
  }
  SECTION("the same client on a new connection") {
    CHECK_THAT(refusal(table.join(request(0, 1), 2), 1), Catch::Contains("same client"));
    table.leave(1);  // the old connection's end is noticed late
    CHECK(members(table.join(request(1, 3), 3)) == Members{2, 3});
  }
}

TEST_CASE("JoinTable lets no stale process take the place of a newer one", "[unit][join_table]") {
  JoinTable table(StaticPlan::of_size(2));
  CHECK(waits(table.join(request(0, 1, 2), 1)));
  CHECK_THAT(refusal(table.join(request(0, 2, 1), 2), 2),
             Catch::Contains("incarnation 1 of slot 0 comes too late") && Catch::Contains("incarnation 2"));
  CHECK(table.is_waiting(1));
  // A newer one takes the seat, and then the one before is stale, also where its join succeeded earlier.
  CHECK_THAT(refusal(table.join(request(0, 3, 3), 3), 1),
             Catch::Contains("incarnation 3 of slot 0") && Catch::Contains("incarnation 2 of slot 0"));
  CHECK(members(table.join(request(1, 4), 4)) == Members{3, 4});
  CHECK(waits(table.join(request(0, 5, 4), 5)));
  CHECK_THAT(refusal(table.join(request(0, 3, 3), 6), 6), Catch::Contains("too late"));
  table.leave(5);
  CHECK_THAT(refusal(table.join(request(0, 3, 3), 6), 6), Catch::Contains("too late"));
}

TEST_CASE("JoinTable refuses a process whose environment contradicts the plan, alone", "[unit][join_table]") {
  const RankNumbers second{.rank = 1, .size = 2, .local_rank = 1, .local_size = 2, .cross_rank = 0, .cross_size = 1};
  JoinTable table(std::make_shared<StaticPlan>(
      std::vector<RankNumbers>{{.rank = 0, .size = 2, .local_rank = 0, .local_size = 2}, second}));
  CHECK(waits(table.join(request(0, 1), 1)));
  const auto error_of = [&](RankNumbers environment) {
    JoinBody bad = request(1, 2, 9);  // its number does not make those of the others old
    bad.environment = environment;
    const JoinOutcome outcome = table.join(bad, 2);
    CHECK(table.waiting_count() == 1);
    return refusal(outcome, 2);
  };
  CHECK_THAT(error_of({.rank = 1, .size = 3}),
             Catch::Contains("HOROVOD_SIZE is 3") && Catch::Contains("slot 1") && Catch::Contains("has 2"));
  CHECK_THAT(error_of({.rank = 0}), Catch::Contains("HOROVOD_RANK is 0") && Catch::Contains("has 1"));
  RankNumbers other = second;
  other.cross_size = 2;
  CHECK_THAT(error_of(other), Catch::Contains("HOROVOD_CROSS_SIZE is 2") && Catch::Contains("has 1"));
  // What a process was not told is the plan's to say.
  JoinBody good = request(1, 2);
  good.environment = {.rank = 1};
  CHECK(table.join(good, 2).joined[1].second == second);
}

TEST_CASE("JoinTable refuses slots and rows that cannot be, alone and without a trace", "[unit][join_table]") {
  JoinTable table(StaticPlan::of_size(3), 0, {.row_bytes = 10, .total_row_bytes = 15});
  CHECK(waits(table.join(request(0, 1), 1)));
  CHECK_THAT(refusal(table.join(request(-1, 2), 2), 2), Catch::Contains("slot -1") && Catch::Contains("0..2"));
  CHECK_THAT(refusal(table.join(request(3, 2), 2), 2), Catch::Contains("slot 3 is not of this job, which has 3"));
  JoinBody big = request(1, 2);
  big.row = Bytes(11);
  CHECK_THAT(refusal(table.join(big, 2), 2), Catch::Contains("11 bytes"));
  CHECK(table.waiting_count() == 1);

  big.row = Bytes(10);
  CHECK(waits(table.join(big, 2)));
  CHECK_THAT(refusal(table.join(request(2, 3), 3), 3), Catch::Contains("15 of at most 15"));
  table.leave(2);
  CHECK(waits(table.join(request(2, 3), 3)));
}

TEST_CASE("JoinTable forgets a member that leaves, and says who is missing", "[unit][join_table]") {
  JoinTable table(StaticPlan::of_size(4));
  CHECK(waits(table.join(request(2, 2), 2)));
  CHECK(waits(table.join(request(0, 1), 1)));
  CHECK(table.describe_missing() == "2 of 4 ranks wait; never joined: 1, 3");
  CHECK(table.first_slot() == 0);
  table.leave(2);
  table.leave(2);
  CHECK(table.describe_missing() == "1 of 4 ranks wait; never joined: 1, 3; joined but wait no longer: 2");
  CHECK_FALSE(table.is_waiting(2));
  CHECK(waits(table.join(request(1, 3), 3)));
  CHECK(waits(table.join(request(3, 4), 4)));
  CHECK(table.join(request(2, 2), 5).epoch == 1);

  JoinTable large(StaticPlan::of_size(100));
  CHECK(waits(large.join(request(0, 9), 1)));
  CHECK_THAT(large.describe_missing(), Catch::EndsWith("never joined: 1, 2, 3, 4, 5, 6, 7, 8 and more"));
}

TEST_CASE("JoinTable knows the lowest slot that waits, also between its polls", "[unit][join_table]") {
  JoinTable table(StaticPlan::of_size(4));
  CHECK(waits(table.join(request(0, 1), 1)));
  CHECK(waits(table.join(request(1, 2), 2)));
  CHECK(waits(table.join(request(2, 3), 3)));
  table.end_poll(1);
  CHECK_FALSE(table.is_waiting(1));
  CHECK(table.first_slot() == 0);
  CHECK(waits(table.join(request(0, 1), 4)));  // on another connection
  table.leave(1);
  CHECK(table.first_slot() == 0);
  table.end_poll(4);
  table.leave(4);  // it has died between two polls
  CHECK(table.first_slot() == 1);
  table.leave(2);  // and this one in a poll
  CHECK(table.first_slot() == 2);
}

TEST_CASE("JoinTable ends a round for all who wait when the plan says so", "[unit][join_table]") {
  const auto plan = std::make_shared<OpenPlan>();
  JoinTable table(plan);
  CHECK(waits(table.join(request(3, 1), 1)));
  CHECK(waits(table.join(request(5, 2), 2)));
  plan->problem = Status::precondition("too few hosts are left");
  const JoinOutcome outcome = table.reconsider();
  REQUIRE(outcome.refused.size() == 2);
  CHECK(outcome.refused[0].second.message() == "too few hosts are left");
  CHECK(outcome.refused[1].second.message() == "too few hosts are left");
  CHECK(table.waiting_count() == 0);
}

TEST_CASE("JoinTable refuses who waits and may not any more", "[unit][join_table]") {
  const auto plan = std::make_shared<OpenPlan>();
  JoinTable table(plan);
  CHECK(waits(table.join(request(3, 1), 1)));
  CHECK(waits(table.join(request(5, 2), 2)));
  CHECK(table.epoch() == 0);
  plan->drained = 3;
  plan->begin = true;
  const JoinOutcome outcome = table.reconsider();
  CHECK_THAT(refusal(outcome, 1), Catch::Contains("drained"));
  CHECK(members(outcome) == Members{2});
  CHECK(table.epoch() == 1);
}

TEST_CASE("JoinTable leaves it to the plan who forms an epoch and when", "[unit][join_table]") {
  const auto plan = std::make_shared<OpenPlan>();
  JoinTable table(plan);
  CHECK(waits(table.join(request(3, 1), 1)));
  CHECK(waits(table.join(request(5, 2), 2)));
  CHECK_THAT(refusal(table.join(request(7, 3), 3), 3), Catch::Contains("drained"));
  CHECK(waits(table.reconsider()));
  plan->begin = true;
  const JoinOutcome begun = table.reconsider();
  CHECK(begun.epoch == 1);
  CHECK(members(begun) == Members{1, 2});
  CHECK(begun.joined[0].second.rank == 1);
  CHECK(as_text(begun.rows[0]) == "row 5");
  CHECK(as_text(begun.rows[1]) == "row 3");
}
