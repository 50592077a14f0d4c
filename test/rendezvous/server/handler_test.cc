#include "rendezvous/server/handler.h"

#include <catch2/catch.hpp>

#include "rendezvous/protocol/bodies.h"
#include "rendezvous/protocol/names.h"

using namespace hvd;
using namespace hvd::rendezvous;

namespace {

Route key_route(Action action, const std::string& scope, const std::string& key, Millis wait = Millis(0)) {
  return {.action = action, .scope = scope, .key = key, .wait = wait};
}

const Route kJoinRoute{.action = Action::kJoin, .scope = "", .key = ""};
const Route kGetManyRoute{.action = Action::kGetMany, .scope = "", .key = ""};

const crypto::Secret kSeatKey = crypto::Secret::random();

Bytes join_body(int slot, RankNumbers environment = {}) {
  return encode_join({.seat = make_seat(kSeatKey, {slot, 0}),
                      .environment = environment,
                      .nonce = crypto::random_nonce<Nonce>(),
                      .wait = Millis(1000),
                      .row = {static_cast<std::uint8_t>(slot)}});
}

Handler handler_for(int ranks) { return Handler(StaticPlan::of_size(ranks), kSeatKey); }

std::uint64_t epoch_in(const Reply& reply) { return decode_join_answer(reply.body).value().epoch; }

// The one rank of a job joins: the quick way to the next epoch.
std::uint64_t next_epoch(Handler& handler) {
  return epoch_in(handler.handle(1000, kJoinRoute, join_body(0)).reply.value());
}

}  // namespace

TEST_CASE("Handler answers a waiting get when the key is put", "[unit][handler]") {
  Handler handler = handler_for(1);
  const auto waiting = handler.handle(1, key_route(Action::kGet, "s", "k", Millis(500)), {});
  CHECK_FALSE(waiting.reply);
  CHECK(waiting.wait == Millis(500));
  const auto put = handler.handle(2, key_route(Action::kPut, "s", "k"), as_bytes("v"));
  CHECK(put.reply->status == 200);
  REQUIRE(put.released.size() == 1);
  CHECK(put.released[0].first == 1);
  CHECK(put.released[0].second.status == 200);
  CHECK(as_text(put.released[0].second.body) == "v");
  CHECK(handler.handle(3, key_route(Action::kGet, "s", "k"), {}).reply->body == put.released[0].second.body);
}

TEST_CASE("Handler answers 404 to a get that waits in vain or not at all", "[unit][handler]") {
  Handler handler = handler_for(1);
  CHECK(handler.handle(1, key_route(Action::kGet, "s", "k"), {}).reply->status == 404);
  CHECK_FALSE(handler.handle(1, key_route(Action::kGet, "s", "k", Millis(500)), {}).reply);
  CHECK(handler.expire(1).status == 404);
  CHECK(handler.store().waiter_count() == 0);
}

TEST_CASE("Handler files the rows of a complete group and answers everybody", "[unit][handler]") {
  Handler handler = handler_for(2);
  CHECK_FALSE(handler.handle(1, kJoinRoute, join_body(1)).reply);
  const auto last = handler.handle(2, kJoinRoute, join_body(0));
  CHECK(epoch_in(last.reply.value()) == 1);
  REQUIRE(last.released.size() == 1);
  CHECK(last.released[0].first == 1);
  CHECK(epoch_in(last.released[0].second) == 1);
  const auto rows = handler.handle(1, kGetManyRoute, encode_get_many({.scope = scope_of_epoch(1), .keys = {"0", "1"}}));
  const auto values = decode_values(rows.reply.value().body).value();
  CHECK(values[0] == Bytes{0});
  CHECK(values[1] == Bytes{1});
}

TEST_CASE("Handler says who is missing when a join waits in vain, and forgets the rank", "[unit][handler]") {
  Handler handler = handler_for(2);
  CHECK_FALSE(handler.handle(1, kJoinRoute, join_body(1)).reply);
  const Reply reply = handler.expire(1);
  CHECK(reply.status == 202);
  const auto body = decode_not_yet(reply.body).value();
  CHECK(body.missing == "1 of 2 ranks wait; never joined: 0");
  CHECK(body.first_slot == 1);
  CHECK(handler.joins().waiting_count() == 0);
  CHECK_FALSE(handler.handle(2, kJoinRoute, join_body(0)).reply);
  handler.forget(2);
  CHECK(handler.joins().waiting_count() == 0);
}

TEST_CASE("Handler refuses a rank that disagrees with the plan, and the others go on", "[unit][handler]") {
  Handler handler = handler_for(2);
  CHECK_FALSE(handler.handle(1, kJoinRoute, join_body(1)).reply);
  const auto stranger = handler.handle(2, kJoinRoute, join_body(0, {.size = 3}));
  CHECK(stranger.reply->status == 409);
  CHECK(stranger.released.empty());
  CHECK(decode_error(stranger.reply->body).code() == StatusCode::kPrecondition);
  CHECK(handler.handle(3, kJoinRoute, join_body(0)).released.size() == 1);
}

TEST_CASE("Handler closes an epoch's scopes when the group's next epoch begins", "[unit][handler]") {
  Handler handler = handler_for(1);
  REQUIRE(next_epoch(handler) == 1);
  const std::string mine = scope_of_epoch(1, "mine");
  CHECK(handler.handle(1, key_route(Action::kPut, mine, "k"), as_bytes("v")).reply->status == 200);
  CHECK_FALSE(handler.handle(2, key_route(Action::kGet, mine, "later", Millis(500)), {}).reply);
  const auto next = handler.handle(3, kJoinRoute, join_body(0));
  REQUIRE(next.released.size() == 1);
  CHECK(next.released[0].first == 2);
  CHECK(decode_error(next.released[0].second.body).message() == "the session is over: its ranks have joined again");
  const auto status = [&](Action action, const std::string& scope, Millis wait = Millis(0)) {
    return handler.handle(1, key_route(action, scope, "k", wait), {}).reply.value().status;
  };
  for (const std::string& over :
       {mine, scope_of_epoch(1), scope_of_epoch(3), scope_of_epoch(3, "x"), std::string("epoch.02")}) {
    CHECK(status(Action::kGet, over, Millis(500)) == 409);
    CHECK(status(Action::kPut, over) == 409);
  }
  CHECK(handler.store().key_count() == 1);  // the row of epoch 2
}

TEST_CASE("Handler keeps rows from being written by clients", "[unit][handler]") {
  Handler handler = handler_for(1);
  REQUIRE(next_epoch(handler) == 1);
  CHECK(handler.handle(1, key_route(Action::kPut, scope_of_epoch(1), "9"), as_bytes("v")).reply->status == 409);
  CHECK(handler.handle(1, key_route(Action::kGet, scope_of_epoch(1), "0"), {}).reply->status == 200);
}

TEST_CASE("Handler does not grow over many epochs", "[unit][handler]") {
  Handler handler = handler_for(1);
  for (std::uint64_t epoch = 1; epoch <= 2000; ++epoch) {
    REQUIRE(next_epoch(handler) == epoch);
    REQUIRE(handler.handle(1, key_route(Action::kPut, scope_of_epoch(epoch, "x"), "k"), Bytes(1000)).reply->status ==
            200);
  }
  CHECK(handler.store().key_count() == 2);
}

TEST_CASE("Handler answers as many values as fit and at least one", "[unit][handler]") {
  Handler handler = handler_for(1);
  std::vector<std::string> keys;
  for (int i = 0; i < 6; ++i) {
    keys.push_back(std::to_string(i));
    REQUIRE(handler.handle(1, key_route(Action::kPut, "s", keys.back()), Bytes(256 * 1024)).reply->status == 200);
  }
  const auto reply = handler.handle(1, kGetManyRoute, encode_get_many({.scope = "s", .keys = keys})).reply.value();
  CHECK(reply.body.size() <= kMaxBodyBytes);
  CHECK(decode_values(reply.body).value().size() == 3);
}

TEST_CASE("Handler refuses bodies that cannot be read and changes nothing", "[unit][handler]") {
  Handler handler = handler_for(1);
  CHECK(handler.handle(1, kJoinRoute, as_bytes("nonsense")).reply->status == 400);
  CHECK(handler.handle(1, kGetManyRoute, {}).reply->status == 400);
  CHECK(handler.handle(1, kJoinRoute, join_body(5)).reply->status == 400);
  const Bytes forged = encode_join({.seat = make_seat(crypto::Secret::random(), {0, 0}), .environment = {}, .row = {}});
  const Reply refused = handler.handle(1, kJoinRoute, forged).reply.value();
  CHECK(refused.status == 409);
  CHECK_THAT(decode_error(refused.body).message(), Catch::Contains("token") && Catch::Contains("slot 0"));
  CHECK(handler.joins().waiting_count() == 0);
}
