#include "rendezvous/protocol/signing.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "rendezvous/protocol/seat.h"
#include "runtime/base/bytes.h"

using namespace hvd;
using namespace hvd::rendezvous;

namespace {

const crypto::Secret& key() {
  static const crypto::Secret fixed = crypto::Secret::from_bytes(Bytes(32, 7)).value();
  return fixed;
}

HttpRequest sample() { return {.method = "PUT", .target = "/v1/kv/s/k", .authorization = "", .body = {1, 2, 3}}; }

}  // namespace

TEST_CASE("The field Authorization reads back what is written", "[unit][signing]") {
  Authorization sent{.session = crypto::random_nonce<Nonce>(), .counter = UINT64_MAX, .mac = crypto::sha256({})};
  const auto got = parse_authorization(format_authorization(sent));
  REQUIRE(got);
  CHECK(got->session == sent.session);
  CHECK(got->counter == sent.counter);
  CHECK(got->mac == sent.mac);
}

TEST_CASE("The field Authorization has one spelling", "[unit][signing]") {
  const std::string session(32, '0');
  const std::string mac(64, 'a');
  REQUIRE(parse_authorization("HVD1 " + session + ",1," + mac));
  const std::vector<std::string> all_bad = {"",
                                            "HVD1",
                                            "HVD1 ",
                                            "HVD2 " + session + ",1," + mac,
                                            "hvd1 " + session + ",1," + mac,
                                            "HVD1  " + session + ",1," + mac,
                                            "HVD1 " + session + "," + mac,
                                            "HVD1 " + session + ",," + mac,
                                            "HVD1 " + session + ",+1," + mac,
                                            "HVD1 " + session + ",01," + mac,
                                            "HVD1 " + session + ",1 ," + mac,
                                            "HVD1 " + session + ",18446744073709551616," + mac,
                                            "HVD1 " + session + ",1,2," + mac,
                                            "HVD1 " + session + ",1," + mac + "a",
                                            "HVD1 " + session + ",1," + std::string(64, 'A'),
                                            "HVD1 " + session + "0,1," + mac,
                                            "HVD1 " + session + ",1," + mac + " "};
  for (const std::string& bad : all_bad) {
    INFO(bad);
    CHECK_FALSE(parse_authorization(bad));
  }
}

TEST_CASE("Every part of a request is under its MAC", "[unit][signing]") {
  const auto mac = [](const HttpRequest& request, const Nonce& session, std::uint64_t counter) {
    return request_mac(key(), request, session, counter);
  };
  const Nonce session{1};
  const crypto::Digest base = mac(sample(), session, 5);
  CHECK(mac(sample(), session, 5) == base);
  CHECK(mac(sample(), session, 6) != base);
  CHECK(mac(sample(), Nonce{2}, 5) != base);
  HttpRequest changed = sample();
  changed.method = "GET";
  CHECK(mac(changed, session, 5) != base);
  changed = sample();
  changed.target = "/v1/kv/s/K";
  CHECK(mac(changed, session, 5) != base);
  changed = sample();
  changed.body.push_back(0);
  CHECK(mac(changed, session, 5) != base);
  changed = sample();
  changed.body.back() ^= 1;
  CHECK(mac(changed, session, 5) != base);
  // No byte can move from one field to its neighbour.
  changed = sample();
  changed.method = "PUT/";
  changed.target = "v1/kv/s/k";
  CHECK(mac(changed, session, 5) != base);
  CHECK(request_mac(crypto::Secret::random(), sample(), session, 5) != base);
}

TEST_CASE("A response is bound to its request, status and body", "[unit][signing]") {
  HttpRequest request = sample();
  const crypto::Digest mac = sign_request(key(), {}, 1, request);
  HttpResponse response;
  response.status = 200;
  response.body = {9};
  CHECK_FALSE(is_authentic(key(), mac, response));
  sign_response(key(), mac, response);
  CHECK(is_authentic(key(), mac, response));
  CHECK_FALSE(is_authentic(crypto::Secret::random(), mac, response));
  CHECK_FALSE(is_authentic(key(), sign_request(key(), {}, 2, request), response));
  HttpResponse changed = response;
  changed.status = 202;
  CHECK_FALSE(is_authentic(key(), mac, changed));
  changed = response;
  changed.body = {8};
  CHECK_FALSE(is_authentic(key(), mac, changed));
  changed = response;
  changed.signature += "0";
  CHECK_FALSE(is_authentic(key(), mac, changed));
}

TEST_CASE("A session's key depends on the secret and on both sides' nonces", "[unit][signing]") {
  const auto hex = [](const crypto::Secret& secret) { return to_hex(secret.bytes()); };
  const std::string base = hex(session_key(key(), as_bytes("body"), Nonce{1}));
  CHECK(hex(session_key(key(), as_bytes("body"), Nonce{1})) == base);
  CHECK(hex(session_key(key(), as_bytes("Body"), Nonce{1})) != base);
  CHECK(hex(session_key(key(), as_bytes("body"), Nonce{2})) != base);
  CHECK(hex(session_key(crypto::Secret::random(), as_bytes("body"), Nonce{1})) != base);
  CHECK(hex(store_key(key())) == hex(key().derive("kv", 0)));
  CHECK(crypto::random_nonce<Nonce>() != crypto::random_nonce<Nonce>());
}

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
