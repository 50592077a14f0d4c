#pragma once

#include <string>
#include <string_view>

#include "rendezvous/protocol/http_head.h"
#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

namespace hvd::rendezvous {

enum class Action { kSession, kJoin, kGetMany, kGet, kPut };

// A request line that names one of our routes. scope and key are for kGet and kPut, wait for kGet.
struct Route {
  Action action = Action::kSession;
  std::string scope;
  std::string key;
  Millis wait{0};  // how long to wait for a key that does not exist; at most kMaxLongPoll
};

// Either a route or what to answer instead: 404 for an unknown path, 405 for a method that the path
// has not, 400 for a scope, key or wait that is not legal. Needs no secret: it depends on the
// request line alone.
struct RouteOrProblem {
  Route route;
  HttpProblem problem{.status = 0, .reason = ""};  // status 0: the route is valid
};
RouteOrProblem parse_route(std::string_view method, std::string_view target);

std::string_view method_of(Action action);
// The target that parse_route reads back. Requires: scope and key are legal.
std::string target_of(const Route& route);

}  // namespace hvd::rendezvous
