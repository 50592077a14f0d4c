// The engine with control links that exist in this test only.
#include "runtime/engine/engine_loop.h"

#include <sched.h>

#include <catch2/catch.hpp>
#include <new>

#include "runtime/wire/codec.h"
#include "test/runtime/engine/lone_engine.h"

namespace hvd::engine {
namespace {

// Waits in its first call as one does that connects: no abort ends it.
class ConnectingBackend final : public collectives::CollectiveBackend {
 public:
  ConnectingBackend(Event& started, const Event& given_up) : started_(started), given_up_(given_up) {}
  std::string_view name() const override { return "connecting"; }
  std::string why_not(const collectives::CallTraits&) const override { return ""; }
  const collectives::Memory& memory(collectives::MemoryKind) const override { return collectives::host_memory(); }
  std::shared_ptr<void> allocate_staging(collectives::MemoryKind, std::size_t) override { return nullptr; }
  void start(const collectives::CollectiveCall&, collectives::Completion done) override {
    started_.set();
    const Deadline patience = Deadline::after(Millis(20000));
    while (!given_up_.is_set() && !patience.expired()) ::sched_yield();
    done(Status::timeout("given up"));
  }
  void abort(const Status&) override {}

 private:
  Event& started_;
  const Event& given_up_;
};

// Lets "x" go.
wire::Decision first_decision() {
  wire::Decision decision;
  decision.sequence = 1;
  wire::Response response;
  response.name = "x";
  response.shape = {1};
  decision.items.emplace_back(response);
  return decision;
}

TEST_CASE("The end of a session does not wait for a lane that connects", "[engine]") {
  Event started;
  Event given_up;
  std::vector<float> data(1);
  Rank rank(1, 2, [&](const topology::ProcessSet&) {
    std::vector<std::unique_ptr<collectives::CollectiveBackend>> backends;
    backends.push_back(std::make_unique<ConnectingBackend>(started, given_up));
    return std::make_shared<collectives::BackendList>(std::move(backends));
  });
  rank.engine.attach(std::make_unique<KeptLinks>(rank.sent));
  const auto handle = rank.table.add(test::allreduce("x", data));
  REQUIRE(handle.is_ok());
  rank.engine.notify();
  rank.engine.loop().post([&] { rank.engine.on_control_message(0, wire::encode(first_decision())); });
  REQUIRE(started.wait_for(Millis(20000)));
  rank.engine.force_stop({wire::Stop::Kind::kShutdown, 0, "enough"});
  rank.engine.stopped().wait();
  const TimePoint before = SteadyClock::now();
  rank.engine.finish(Deadline::after(Millis(50)), [&] { given_up.set(); });
  rank.ended = true;
  CHECK(SteadyClock::now() - before < Millis(5000));
  CHECK(handle.value()->status().message() == "enough");
}

TEST_CASE("A rank whose engine gets no memory is lost to all", "[engine]") {
  std::vector<float> data(1);
  const int own = GENERATE(0, 1);
  Rank rank(own, 2,
            [](const topology::ProcessSet&) -> std::shared_ptr<collectives::BackendList> { throw std::bad_alloc(); });
  rank.engine.attach(std::make_unique<KeptLinks>(rank.sent));
  const auto handle = rank.table.add(test::allreduce("x", data));
  REQUIRE(handle.is_ok());
  rank.engine.notify();
  wire::Request request;
  request.rank = 1;
  request.name = "x";
  request.shape = {1};
  wire::Report report;
  report.requests.emplace_back(request);
  const Bytes message = own == 0 ? wire::encode(report) : wire::encode(first_decision());
  rank.engine.loop().post([&] { rank.engine.on_control_message(1 - own, message); });
  REQUIRE(rank.engine.stopped().wait_for(Millis(20000)));
  CHECK(handle.value()->status().code() == StatusCode::kPeerLost);
  const std::string text = "rank " + std::to_string(own) + " is lost: its thread hvd-engine got no more memory";
  CHECK(handle.value()->status().message().starts_with(text));
  rank.end();
  const Bytes& last = rank.sent->back().second;
  if (own == 0) {
    CHECK(wire::decode_decision(last).value().stop->message.starts_with(text));
  } else {
    CHECK(wire::decode_report(last).value().lost_ranks.at(0).rank == 1);
  }
}

// Rank 0 lets two decisions of a set be under way. What is ready beyond that must not wait for the engine's next timer,
// seconds later. One attempt of three is enough: the machine may be busy.
TEST_CASE("What waits for the end of a batch is released with it", "[multi][engine]") {
  auto session = Session::start(config::RuntimeConfig());
  REQUIRE(session.is_ok());
  // A change of sets is decided after what was enqueued before it, if only to be refused.
  const auto see_decided = [&] {
    CHECK(test::wait(session.value()->add_process_set({0})).code() == StatusCode::kInvalidArgument);
  };
  bool was_soon = false;
  for (int attempt = 0; attempt < 3 && !was_soon; ++attempt) {
    const std::string number = std::to_string(attempt);  // of names that are new: known ones come with a timer
    Event started;
    Event go_on;
    std::vector<float> mine(1);
    std::vector<float> all;
    std::vector<float> data(1);
    const auto first = session.value()->enqueue(test::allgather("first" + number, mine, all, kGlobalProcessSet, [&] {
      started.set();
      go_on.wait();
    }));
    started.wait();
    const auto second = session.value()->enqueue(test::allreduce("second" + number, data));
    see_decided();
    const auto third = session.value()->enqueue(test::allreduce("third" + number, data));
    see_decided();
    Event().wait_for(Millis(5));  // that the engine sleeps is what this is about
    go_on.set();
    const auto begin = std::chrono::steady_clock::now();
    CHECK(test::wait(third).is_ok());
    was_soon = std::chrono::steady_clock::now() - begin < std::chrono::seconds(1);
    CHECK(test::wait(first).is_ok());
    CHECK(test::wait(second).is_ok());
  }
  CHECK(was_soon);
}

TEST_CASE("A neighbour that dies before the engine has its links is lost all the same", "[engine]") {
  const Status gone = Status::peer_lost("connection reset");
  SECTION("a child of the root, the parent of a rank") {
    const int rank = GENERATE(0, 1);
    Rank one(rank, 2);
    one.engine.loop().post([&] { one.engine.on_control_lost(1 - rank, gone); });
    one.engine.attach(std::make_unique<KeptLinks>(one.sent));
    one.engine.stopped().wait();
    one.end();
    CHECK(one.reason == "rank " + std::to_string(1 - rank) + " is lost: connection reset");
    CHECK(one.sent->size() == (rank == 0 ? 1U : 0U));  // the root says so to everybody, the dead rank too
  }
  SECTION("a child of a rank that is not the root") {
    Rank relay(1, 12);  // its children are 9, 10 and 11
    relay.engine.loop().post([&] { relay.engine.on_control_lost(9, gone); });
    relay.engine.attach(std::make_unique<KeptLinks>(relay.sent));
    relay.engine.force_stop({wire::Stop::Kind::kShutdown, -1, "enough"});
    relay.engine.stopped().wait();
    relay.end();
    REQUIRE(relay.sent->size() == 1);
    CHECK(relay.sent->front().first == 0);
    const auto report = wire::decode_report(relay.sent->front().second);
    REQUIRE(report.is_ok());
    CHECK(report.value().lost_ranks == std::vector<wire::LostRank>{{9, "connection reset"}});
  }
}

}  // namespace
}  // namespace hvd::engine
