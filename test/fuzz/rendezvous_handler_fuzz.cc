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

// A round of any two.
struct FuzzedPlan final : Plan {
  int max_slots() const override { return 3; }
  Status admit(const Seat& seat, const RankNumbers&) const override {
    return seat.process.slot < max_slots() ? Status::ok() : Status::invalid_argument("no such slot");
  }
  Result<Round> decide(const Waiting& waiting) override {
    Round round;
    if (waiting.size() < 2) return round;
    for (const auto& [slot, body] : waiting) {
      if (body.environment.size == 3) return Status::precondition("3 is too many");
      const int rank = static_cast<int>(round.size());
      round.emplace(slot, RankNumbers{.rank = rank, .size = 2});
    }
    return round;
  }
  std::string describe_missing(const Waiting&, const std::set<int>&) const override { return "one of two"; }
};

struct Script {
  const crypto::Secret seat_key = crypto::Secret::random();
  Handler handler{std::make_shared<FuzzedPlan>(), seat_key};
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
      body = encode_join({.seat = make_seat(seat_key, {a % 4, a & 64 ? 1u : 0u}),
                          .environment = {.size = a & 128 ? 3 : RankNumbers::kUnknown},
                          .nonce = nonce,
                          .wait = Millis(1000),
                          .row = Bytes(b)});
    } else if (operation == 2) {
      route.action = Action::kGetMany;
      body = encode_get_many({.scope = route.scope, .keys = {"0", "1", route.key}});
    } else if (operation == 3) {
      return release(connection, handler.reconsider());
    } else if (operation == 4) {
      route.action = Action::kGet;
      route.wait = Millis(b % 2 * 1000);
    } else {
      route.action = Action::kPut;
      body = Bytes(b / 64u, 1);
    }
    const Handler::Outcome outcome = handler.handle(connection, route, body);
    if (!outcome.reply) waiting.insert(connection);
    release(connection, outcome.released);
  }

  void release(ConnectionId caller, const std::vector<std::pair<ConnectionId, Reply>>& released) {
    for (const auto& [connection, reply] : released) {
      HVD_CHECK(connection != caller, "the caller's answer is the reply");
      HVD_CHECK(waiting.erase(connection) == 1, "only who waits is answered, and once");
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
