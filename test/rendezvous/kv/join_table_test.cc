#include "rendezvous/kv/join_table.h"

#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::rendezvous;

namespace {

JoinNonce nonce_of(int number) {
  JoinNonce nonce{};
  nonce[0] = static_cast<std::uint8_t>(number);
  nonce[1] = static_cast<std::uint8_t>(number >> 8);
  return nonce;
}

JoinRequest request(int rank, int size, int nonce, const std::string& group = "world") {
  const std::string row = "row " + std::to_string(rank);
  return {.group = group, .rank = rank, .size = size, .nonce = nonce_of(nonce), .row = Bytes(row.begin(), row.end())};
}

using Members = std::vector<MemberId>;

}  // namespace

TEST_CASE("JoinTable completes with the last rank and numbers the epochs across groups", "[unit][join_table]") {
  JoinTable table;
  CHECK(table.join(request(1, 2, 1), 11).waiting());
  CHECK(table.join(request(0, 1, 2, "other"), 21).epoch == 1);
  const JoinOutcome done = table.join(request(0, 2, 3), 10);
  CHECK(done.epoch == 2);
  CHECK(done.retired_epoch == 0);
  CHECK(done.others == Members{11});
  REQUIRE(done.rows.size() == 2);
  CHECK(as_text(done.rows[0]) == "row 0");
  CHECK(as_text(done.rows[1]) == "row 1");
  CHECK(table.waiting_count() == 0);
  CHECK(table.is_current(1));
  CHECK(table.is_current(2));
  CHECK_FALSE(table.is_current(0));
  CHECK_FALSE(table.is_current(3));
}

TEST_CASE("JoinTable retires the epoch before of the same group only", "[unit][join_table]") {
  JoinTable table;
  CHECK(table.join(request(0, 1, 1), 1).epoch == 1);
  CHECK(table.join(request(0, 1, 2, "other"), 1).epoch == 2);
  const JoinOutcome next = table.join(request(0, 1, 3), 1);
  CHECK(next.epoch == 3);
  CHECK(next.retired_epoch == 1);
  CHECK_FALSE(table.is_current(1));
  CHECK(table.is_current(2));
}

TEST_CASE("JoinTable gives a retry its epoch again", "[unit][join_table]") {
  JoinTable table;
  CHECK(table.join(request(0, 2, 1), 1).waiting());
  CHECK(table.join(request(1, 2, 2), 2).epoch == 1);
  const JoinOutcome again = table.join(request(0, 2, 1), 3);
  CHECK(again.epoch == 1);
  CHECK(again.rows.empty());
  CHECK(again.others.empty());
  CHECK(table.join(request(0, 2, 9), 3).waiting());  // another nonce is the next round
  CHECK(table.join(request(0, 2, 2), 4).waiting());  // and so is another rank's nonce
}

TEST_CASE("JoinTable lets a second join of a rank take the first one's seat", "[unit][join_table]") {
  JoinTable table;
  CHECK(table.join(request(0, 2, 1), 1).waiting());
  SECTION("a restarted process") {
    JoinRequest restarted = request(0, 2, 2);
    restarted.row = {42};
    const JoinOutcome outcome = table.join(restarted, 2);
    CHECK(outcome.waiting());
    CHECK(outcome.replaced == MemberId{1});
    CHECK_THAT(outcome.replaced_error.message(), Catch::Contains("rank 0") && Catch::Contains("another process"));
    const JoinOutcome done = table.join(request(1, 2, 3), 3);
    CHECK(done.rows[0] == Bytes{42});
    CHECK(done.others == Members{2});
  }
  SECTION("the same client on a new connection") {
    CHECK(table.join(request(0, 2, 1), 2).replaced == MemberId{1});
    table.leave(1);  // the old connection's end is noticed late
    CHECK(table.join(request(1, 2, 3), 3).others == Members{2});
  }
}

TEST_CASE("JoinTable ends a round whose ranks disagree on the size, for all of them", "[unit][join_table]") {
  JoinTable table;
  CHECK(table.join(request(0, 3, 1), 1).waiting());
  CHECK(table.join(request(1, 3, 2), 2).waiting());
  const JoinOutcome outcome = table.join(request(2, 4, 3), 3);
  CHECK(outcome.error.code() == StatusCode::kPrecondition);
  CHECK_THAT(outcome.error.message(),
             Catch::Contains("rank 2 says 4") && Catch::Contains("rank 0 says 3") && Catch::Contains("\"world\""));
  CHECK(outcome.failed == Members{1, 2});
  CHECK(table.waiting_count() == 0);
  // The next round starts from nothing.
  CHECK(table.join(request(0, 1, 4), 1).epoch == 1);
}

TEST_CASE("JoinTable refuses ranks, sizes and rows that cannot be, and changes nothing", "[unit][join_table]") {
  JoinTable table({.groups = 1, .group_size = 8, .row_bytes = 10, .total_row_bytes = 15});
  const auto error = [&](JoinRequest bad) { return table.join(std::move(bad), 1).error; };
  CHECK_THAT(error(request(-1, 2, 1)).message(), Catch::Contains("rank -1") && Catch::Contains("0..1"));
  CHECK_THAT(error(request(2, 2, 1)).message(), Catch::Contains("rank 2"));
  CHECK_THAT(error(request(0, 0, 1)).message(), Catch::Contains("size 0") && Catch::Contains("1..8"));
  CHECK_THAT(error(request(0, 9, 1)).message(), Catch::Contains("size 9"));
  JoinRequest big = request(0, 2, 1);
  big.row = Bytes(11);
  CHECK_THAT(error(big).message(), Catch::Contains("11 bytes"));
  CHECK(table.waiting_count() == 0);

  big.row = Bytes(10);
  CHECK(table.join(big, 1).waiting());
  big.rank = 1;
  CHECK_THAT(table.join(big, 2).error.message(), Catch::Contains("10 of at most 15"));
  CHECK_THAT(table.join(request(0, 2, 1, "other"), 3).error.message(), Catch::Contains("1 groups"));
  table.leave(1);
  CHECK(table.join(big, 2).waiting());
}

TEST_CASE("JoinTable forgets a member that leaves, and says who is missing", "[unit][join_table]") {
  JoinTable table;
  CHECK(table.join(request(0, 4, 1), 1).waiting());
  CHECK(table.join(request(2, 4, 2), 2).waiting());
  CHECK(table.describe_missing(1) == "2 of 4 ranks of group \"world\" wait; never joined: 1, 3");
  table.leave(2);
  table.leave(2);
  CHECK(table.describe_missing(1) ==
        "1 of 4 ranks of group \"world\" wait; never joined: 1, 3; joined but wait no longer: 2");
  CHECK(table.describe_missing(2).empty());
  CHECK(table.join(request(1, 4, 3), 3).waiting());
  CHECK(table.join(request(3, 4, 4), 4).waiting());
  CHECK(table.join(request(2, 4, 2), 5).epoch == 1);

  CHECK(table.join(request(0, 100, 9), 1).waiting());
  CHECK_THAT(table.describe_missing(1), Catch::EndsWith("never joined: 1, 2, 3, 4, 5, 6, 7, 8 and more"));
}
