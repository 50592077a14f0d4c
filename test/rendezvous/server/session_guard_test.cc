#include "rendezvous/server/session_guard.h"

#include <catch2/catch.hpp>

#include "rendezvous/protocol/bodies.h"

using namespace hvd;
using namespace hvd::rendezvous;
using Verdict = SessionGuard::Verdict;

namespace {

struct Signed {
  Route route;
  HttpRequest request;
};

struct Setup {
  crypto::Secret key = crypto::Secret::random();
  SessionGuard guard{key};
  crypto::Secret session_key_ = key;
  Nonce session{};

  Signed opening(const crypto::Secret& with) const {
    Signed made{.route = {.action = Action::kSession, .scope = "", .key = ""},
                .request = {.method = "POST", .target = "/v1/session", .authorization = "", .body = {}}};
    made.request.body = encode_session(Nonce{2});
    sign_request(with, {}, 0, made.request);
    return made;
  }
  Signed get(std::uint64_t counter) const {
    Signed made{.route = {.action = Action::kGet, .scope = "s", .key = "k"},
                .request = {.method = "GET", .target = "/v1/kv/s/k", .authorization = "", .body = {}}};
    sign_request(session_key_, session, counter, made.request);
    return made;
  }
  void open() {
    const Signed first = opening(key);
    REQUIRE(guard.check(first.route, first.request) == Verdict::kOpensSession);
    const HttpResponse answer = guard.open(first.request).value();
    session = decode_session_answer(answer.body).value();
    session_key_ = session_key(key, first.request.body, session);
  }
  Verdict check(const Signed& made) { return guard.check(made.route, made.request); }
};

}  // namespace

TEST_CASE("SessionGuard opens one session and then takes rising counters", "[unit][session_guard]") {
  Setup setup;
  CHECK_FALSE(setup.guard.authenticated());
  setup.open();
  CHECK_FALSE(setup.guard.authenticated());  // the opening alone could be a recording
  CHECK(setup.check(setup.get(1)) == Verdict::kAuthentic);
  CHECK(setup.guard.authenticated());
  CHECK(setup.check(setup.get(1)) == Verdict::kRefused);
  CHECK(setup.check(setup.get(7)) == Verdict::kAuthentic);
  CHECK(setup.check(setup.get(6)) == Verdict::kRefused);
  CHECK(setup.check(setup.get(8)) == Verdict::kAuthentic);
  CHECK(setup.check(setup.opening(setup.key)) == Verdict::kRefused);
  CHECK(setup.check(setup.opening(setup.session_key_)) == Verdict::kRefused);
  Signed again = setup.opening(setup.session_key_);
  sign_request(setup.session_key_, setup.session, 0, again.request);
  CHECK(setup.check(again) == Verdict::kRefused);
  Signed elsewhere = setup.get(9);
  Nonce other = setup.session;
  other.front() ^= 1;
  sign_request(setup.session_key_, other, 9, elsewhere.request);
  CHECK(setup.check(elsewhere) == Verdict::kRefused);
}

TEST_CASE("SessionGuard refuses before a session, without a signature and with another key", "[unit][session_guard]") {
  Setup setup;
  CHECK(setup.check(setup.get(1)) == Verdict::kRefused);
  CHECK(setup.check(setup.opening(crypto::Secret::random())) == Verdict::kRefused);
  Signed unsigned_opening = setup.opening(setup.key);
  unsigned_opening.request.authorization.clear();
  CHECK(setup.check(unsigned_opening) == Verdict::kRefused);
  setup.open();
  Signed changed = setup.get(1);
  changed.request.target = "/v1/kv/s/K";
  CHECK(setup.check(changed) == Verdict::kRefused);
  // The store's key is good for nothing once a session is open.
  setup.session_key_ = setup.key;
  CHECK(setup.check(setup.get(1)) == Verdict::kRefused);
  CHECK_FALSE(setup.guard.authenticated());
}

TEST_CASE("SessionGuard signs its answers for the client's check", "[unit][session_guard]") {
  Setup setup;
  Signed first = setup.opening(setup.key);
  const crypto::Digest mac = sign_request(setup.key, {}, 0, first.request);
  REQUIRE(setup.check(first) == Verdict::kOpensSession);
  CHECK(is_authentic(setup.key, mac, setup.guard.open(first.request).value()));
}
