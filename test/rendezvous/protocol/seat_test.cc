#include "rendezvous/protocol/seat.h"

#include <catch2/catch.hpp>

#include "runtime/base/bytes.h"

using namespace hvd;
using namespace hvd::rendezvous;

TEST_CASE("A token is good for its slot and incarnation alone", "[unit][seat]") {
  const auto secret = crypto::Secret::random();
  const crypto::Secret tokens = seat_key(secret);
  const Seat seat = make_seat(tokens, {3, 1});
  CHECK(is_authentic(tokens, seat));
  CHECK(seat.token == seat_token(secret, {3, 1}));
  for (const Seat& other : {Seat{.process = {2, 1}, .token = seat.token}, Seat{.process = {3, 2}, .token = seat.token},
                            Seat{.process = {3, 1}, .token = {}}}) {
    CHECK_FALSE(is_authentic(tokens, other));
  }
  CHECK_FALSE(is_authentic(seat_key(crypto::Secret::random()), seat));
  // HMAC-SHA256 over the slot (i32) and the incarnation (u32), little-endian.
  const Bytes numbers{3, 0, 0, 0, 1, 0, 0, 0};
  CHECK(seat.token == crypto::hmac_sha256(secret.derive("seat", 0), {numbers}));
}
