// A script of requests from a few connections, with connections that go and waits that run out,
// against the handler. Each step is four bytes: operation, connection, and two that pick names and
// sizes. Checked: who waits is answered once and nobody else is.

#include <set>

#include "rendezvous/protocol/bodies.h"
#include "rendezvous/protocol/names.h"
#include "rendezvous/server/handler.h"
#include "runtime/base/check.h"

namespace {

using namespace hvd;
using namespace hvd::rendezvous;

constexpr std::size_t kStepBytes = 4;
constexpr std::size_t kMaxSteps = 2000;

struct Script {
  Handler handler;
  std::set<ConnectionId> waiting;

  void step(ByteSpan bytes) {
    const ConnectionId connection = bytes[1] % 8 + 1u;
    const int operation = bytes[0] % 8;
    if (operation == 7) {
      handler.forget(connection);
      waiting.erase(connection);
    } else if (waiting.contains(connection)) {
      handler.expire(connection);
      waiting.erase(connection);
    } else {
      request(connection, operation, bytes[2], bytes[3]);
    }
    HVD_CHECK(handler.store().waiter_count() + handler.joins().waiting_count() == waiting.size(), "who waits is known");
  }

  void request(ConnectionId connection, int operation, std::uint8_t a, std::uint8_t b) {
    Route route;
    Bytes body;
    const std::string scopes[] = {"s", "t", scope_of_epoch(b % 4u), scope_of_epoch(b % 4u, "x"), "epoch.01"};
    route.scope = scopes[a % 5];
    route.key = std::to_string(b % 4);
    if (operation <= 1) {
      route.action = Action::kJoin;
      Nonce nonce{};
      nonce[0] = static_cast<std::uint8_t>(b >> 5);
      body = encode_join({.group = a & 64 ? "g" : "h",
                          .rank = a % 3,
                          .size = a & 128 ? 3 : b % 4,
                          .nonce = nonce,
                          .wait = Millis(1000),
                          .row = Bytes(b)});
    } else if (operation == 2) {
      route.action = Action::kGetMany;
      body = encode_get_many({.scope = route.scope, .keys = {"0", "1", route.key}});
    } else if (operation == 3) {
      route.action = Action::kErase;
    } else if (operation == 4) {
      route.action = Action::kGet;
      route.wait = Millis(b % 2 * 1000);
    } else {
      route.action = Action::kPut;
      body = Bytes(b / 64u, 1);
    }
    const Handler::Outcome outcome = handler.handle(connection, "owner" + std::to_string(a % 2), route, body);
    if (!outcome.reply) waiting.insert(connection);
    for (const auto& [released, reply] : outcome.released) {
      HVD_CHECK(released != connection, "the caller's answer is the reply");
      HVD_CHECK(waiting.erase(released) == 1, "only who waits is answered, and once");
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Script script;
  ByteSpan bytes(data, size);
  for (std::size_t steps = 0; bytes.size() >= kStepBytes && steps < kMaxSteps; ++steps) {
    script.step(bytes.first(kStepBytes));
    bytes = bytes.subspan(kStepBytes);
  }
  return 0;
}
