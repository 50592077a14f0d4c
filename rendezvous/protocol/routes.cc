#include "rendezvous/protocol/routes.h"

#include <charconv>

#include "rendezvous/protocol/limits.h"
#include "rendezvous/protocol/names.h"

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kSessionTarget = "/v1/session";
constexpr std::string_view kJoinTarget = "/v1/join";
constexpr std::string_view kGetManyTarget = "/v1/mget";
constexpr std::string_view kKeyPrefix = "/v1/kv/";
constexpr std::string_view kWaitPrefix = "wait=";

RouteOrProblem problem(int status, std::string reason) { return {.route = {}, .problem = {status, std::move(reason)}}; }

RouteOrProblem wrong_method(std::string_view method) {
  return problem(405, "method " + std::string(method) + " is not for this path");
}

RouteOrProblem fixed_route(Action action, std::string_view method) {
  if (method != "POST") return wrong_method(method);
  return {.route = {.action = action, .scope = "", .key = ""}};
}

RouteOrProblem key_route(std::string_view method, std::string_view rest) {
  RouteOrProblem parsed;
  Route& route = parsed.route;
  if (method == "GET") {
    route.action = Action::kGet;
  } else if (method == "PUT") {
    route.action = Action::kPut;
  } else {
    return wrong_method(method);
  }

  const std::size_t question = rest.find('?');
  if (question != std::string_view::npos) {
    const std::string_view query = rest.substr(question + 1);
    rest = rest.substr(0, question);
    std::int64_t wait_ms = -1;
    if (query.starts_with(kWaitPrefix)) {
      const std::string_view digits = query.substr(kWaitPrefix.size());
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), wait_ms);
      if (error != std::errc() || end != digits.data() + digits.size()) wait_ms = -1;
    }
    if (route.action != Action::kGet || wait_ms < 0 || wait_ms > kMaxLongPoll.count()) {
      return problem(400, "the only query is wait=0.." + std::to_string(kMaxLongPoll.count()) + ", with GET");
    }
    route.wait = Millis(wait_ms);
  }

  const std::size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return problem(404, "a path under /v1/kv/ is <scope>/<key>");
  route.scope = rest.substr(0, slash);
  route.key = rest.substr(slash + 1);
  if (Status bad = check_scope(route.scope); !bad.is_ok()) return problem(400, bad.message());
  if (Status bad = check_key(route.key); !bad.is_ok()) return problem(400, bad.message());
  return parsed;
}

}  // namespace

RouteOrProblem parse_route(std::string_view method, std::string_view target) {
  if (method != "GET" && method != "PUT" && method != "POST") return wrong_method(method);
  if (target == kSessionTarget) return fixed_route(Action::kSession, method);
  if (target == kJoinTarget) return fixed_route(Action::kJoin, method);
  if (target == kGetManyTarget) return fixed_route(Action::kGetMany, method);
  if (target.starts_with(kKeyPrefix)) return key_route(method, target.substr(kKeyPrefix.size()));
  return problem(404, "no such path");
}

std::string_view method_of(Action action) {
  switch (action) {
    case Action::kGet: return "GET";
    case Action::kPut: return "PUT";
    case Action::kSession:
    case Action::kJoin:
    case Action::kGetMany: break;
  }
  return "POST";
}

std::string target_of(const Route& route) {
  switch (route.action) {
    case Action::kSession: return std::string(kSessionTarget);
    case Action::kJoin: return std::string(kJoinTarget);
    case Action::kGetMany: return std::string(kGetManyTarget);
    case Action::kGet:
    case Action::kPut: break;
  }
  std::string target = std::string(kKeyPrefix) + route.scope + "/" + route.key;
  if (route.wait > Millis(0)) target.append("?").append(kWaitPrefix).append(std::to_string(route.wait.count()));
  return target;
}

}  // namespace hvd::rendezvous
