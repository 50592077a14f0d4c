#include "rendezvous/protocol/routes.h"

#include <catch2/catch.hpp>

#include "rendezvous/protocol/limits.h"

using namespace hvd;
using namespace hvd::rendezvous;

TEST_CASE("Every route reads back what is written", "[unit][routes]") {
  for (const Action action : {Action::kSession, Action::kJoin, Action::kGetMany, Action::kGet, Action::kPut}) {
    Route route{.action = action, .scope = "", .key = ""};
    if (action == Action::kGet || action == Action::kPut) {
      route.scope = "epoch.3.x";
      route.key = "a/b:0";
    }
    if (action == Action::kGet) route.wait = Millis(1234);
    const RouteOrProblem parsed = parse_route(method_of(action), target_of(route));
    CHECK(parsed.problem.status == 0);
    CHECK(parsed.route.action == action);
    CHECK(parsed.route.scope == route.scope);
    CHECK(parsed.route.key == route.key);
    CHECK(parsed.route.wait == route.wait);
  }
}

TEST_CASE("Paths, methods and queries that are not ours are refused", "[unit][routes]") {
  const auto status = [](std::string_view method, std::string_view target) {
    return parse_route(method, target).problem.status;
  };
  CHECK(status("GET", "/") == 404);
  CHECK(status("GET", "") == 404);
  CHECK(status("GET", "/v1/kv/") == 404);
  CHECK(status("GET", "/v1/kv/s") == 404);
  CHECK(status("GET", "/v2/kv/s/k") == 404);
  CHECK(status("POST", "/v1/join/") == 404);
  CHECK(status("POST", "/v1/join?x") == 404);
  CHECK(status("HEAD", "/v1/kv/s/k") == 405);
  CHECK(status("get", "/v1/kv/s/k") == 405);
  CHECK(status("OPTIONS", "*") == 405);
  CHECK(status("DELETE", "/v1/kv/s/k") == 405);
  CHECK(status("GET", "/v1/mget") == 405);
  CHECK(status("PUT", "/v1/session") == 405);
  CHECK(status("POST", "/v1/kv/s/k") == 405);
  CHECK(status("GET", "/v1/kv//k") == 400);
  CHECK(status("GET", "/v1/kv/s/") == 400);
  CHECK(status("GET", "/v1/kv/../k%00") == 400);
  CHECK(status("GET", "/v1/kv/s/k?") == 400);
  CHECK(status("GET", "/v1/kv/s/k?wait=") == 400);
  CHECK(status("GET", "/v1/kv/s/k?wait=-1") == 400);
  CHECK(status("GET", "/v1/kv/s/k?wait=1&x=2") == 400);
  CHECK(status("GET", "/v1/kv/s/k?wait=30001") == 400);
  CHECK(status("GET", "/v1/kv/s/k?wait=99999999999999999999") == 400);
  CHECK(status("PUT", "/v1/kv/s/k?wait=1") == 400);
  CHECK(status("GET", "/v1/kv/s/k?wait=30000") == 0);
}

TEST_CASE("The longest legal key fits into a target", "[unit][routes]") {
  const Route route{.action = Action::kGet,
                    .scope = std::string(kMaxScopeBytes, 's'),
                    .key = std::string(kMaxKeyBytes, 'k'),
                    .wait = kMaxLongPoll};
  CHECK(target_of(route).size() <= kMaxTargetBytes);
}
