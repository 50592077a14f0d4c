// An engine whose memory ends at any one of its allocations.
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <new>

#include "runtime/wire/codec.h"
#include "test/runtime/engine/lone_engine.h"

namespace {

thread_local int allowed = -1;  // allocations of this thread before one fails; below 0: all

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  if (allowed >= 0 && allowed-- == 0) throw std::bad_alloc();
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace hvd::engine {
namespace {

constexpr Millis kLimit{5000};

const std::string kName = "a name that is too long to lie in a string itself";

wire::Decision release(bool again) {
  wire::Decision decision;
  decision.sequence = again ? 2 : 1;
  if (again) {
    decision.items.emplace_back(wire::CacheHit{wire::CacheBit{1}, std::string(4, '\0')});
    return decision;
  }
  wire::Response response;
  response.name = kName;
  response.shape = {1};
  response.bit = wire::CacheBit{1};
  decision.items.emplace_back(response);
  return decision;
}

wire::Report request(bool again) {
  wire::Report report;
  if (again) {
    report.ready_tensors.push_back({wire::CacheBit{1}, std::string(4, '\0')});
    return report;
  }
  wire::Request request;
  request.rank = 1;
  request.name = kName;
  request.shape = {1};
  report.requests.emplace_back(request);
  return report;
}

// In what `post` gives the engine to do its allocation `number` fails; below 0: none does. False: there are fewer.
template <typename Post>
bool runs_out(Rank& rank, int number, Post post) {
  bool has_failed = false;
  Event handled;
  rank.engine.loop().post([number] { allowed = number; });
  post();
  rank.engine.loop().post([&] {
    has_failed = number >= 0 && allowed < 0;
    allowed = -1;
    handled.set();
  });
  REQUIRE(handled.wait_for(kLimit));
  return has_failed;
}

bool tell(Rank& rank, int from, const Bytes& message, int number) {
  return runs_out(rank, number,
                  [&] { rank.engine.loop().post([&] { rank.engine.on_control_message(from, message); }); });
}

// What can do without, as a record of the end, may fail unseen.
void check_end(Rank& rank, const HandlePtr& handle, StatusCode expected, bool has_failed) {
  REQUIRE(handle->wait_for(kLimit));
  const StatusCode code = handle->status().code();
  if (code == expected) return;
  CHECK(has_failed);
  CHECK(code == StatusCode::kPeerLost);
  CHECK(rank.engine.stopped().is_set());
}

// A tensor is used twice, and the memory ends at one of the times.
bool fails(int own, bool in_second, int number) {
  INFO("rank " << own << ", use " << 1 + in_second << ", allocation " << number);
  std::vector<float> data(1);
  Rank rank(own, 2);
  rank.engine.attach(std::make_unique<KeptLinks>(rank.sent));
  for (const bool again : {false, true}) {
    const auto handle = rank.table.add(test::allreduce(kName, data));
    REQUIRE(handle.is_ok());
    if (own == 1) rank.engine.notify();
    const Bytes message = own == 0 ? wire::encode(request(again)) : wire::encode(release(again));
    const bool has_failed = tell(rank, 1 - own, message, again == in_second ? number : -1);
    check_end(rank, handle.value(), StatusCode::kOk, has_failed);
    if (again == in_second) return has_failed;
  }
  return false;
}

bool change_fails(int number) {
  INFO("allocation " << number);
  Rank rank(1, 2);
  rank.engine.attach(std::make_unique<KeptLinks>(rank.sent));
  wire::SetChange change;
  change.kind = wire::SetChange::Kind::kRemove;
  change.set_id = 7;
  const auto handle = rank.changes.add(change);
  REQUIRE(handle.is_ok());
  rank.engine.notify();
  wire::SetDecision refused;
  refused.kind = change.kind;
  refused.error = StatusCode::kInvalidArgument;
  refused.error_message = kName;
  wire::Decision decision;
  decision.sequence = 1;
  decision.items.emplace_back(refused);
  const bool has_failed = tell(rank, 0, wire::encode(decision), number);
  check_end(rank, handle.value(), StatusCode::kInvalidArgument, has_failed);
  return has_failed;
}

// What ends a session of two ranks, of which the engine is one.
struct End {
  const char* what;
  void (*begin)(Rank& rank, int other);
};
constexpr std::array kEnds = {
    End{"the other rank is lost",
        [](Rank& rank, int other) {
          static const Status why = Status::peer_lost(kName);
          rank.engine.loop().post([&rank, other] { rank.engine.on_control_lost(other, why); });
        }},
    End{"the other rank ends it",
        [](Rank& rank, int other) {
          wire::Report report;
          report.lost_ranks.push_back({other, kName});
          wire::Decision decision;
          decision.sequence = 1;
          decision.stop = wire::Stop{wire::Stop::Kind::kShutdown, other, kName};
          const auto message = std::make_shared<Bytes>(other == 0 ? wire::encode(decision) : wire::encode(report));
          rank.engine.loop().post([&rank, other, message] { rank.engine.on_control_message(other, *message); });
        }},
    End{"this rank fails", [](Rank& rank, int) { rank.engine.fail(kName); }},
    End{"it ends alone", [](Rank& rank, int) { rank.engine.force_stop({wire::Stop::Kind::kAbort, -1, kName}); }},
};

bool end_fails(const End& end, int own, bool is_attached, int number) {
  INFO(end.what << ", rank " << own << ", attached " << is_attached << ", allocation " << number);
  std::vector<float> data(1);
  Rank rank(own, 2);
  if (is_attached) rank.engine.attach(std::make_unique<KeptLinks>(rank.sent));
  const auto operation = rank.table.add(test::allreduce(kName, data));
  wire::SetChange change;
  change.kind = wire::SetChange::Kind::kRemove;
  change.set_id = 7;
  const auto set_change = rank.changes.add(change);
  REQUIRE((operation.is_ok() && set_change.is_ok()));
  rank.engine.notify();
  const bool has_failed = runs_out(rank, number, [&] { end.begin(rank, 1 - own); });
  if (!rank.engine.stopped().is_set()) {  // it waits to be attached, or for rank 0's decision
    CHECK_FALSE(has_failed);
    return false;
  }
  CHECK_FALSE(rank.reason.empty());
  for (const HandlePtr& handle : {operation.value(), set_change.value()}) {
    REQUIRE(handle->wait_for(kLimit));
    const StatusCode code = handle->status().code();
    CHECK((code == StatusCode::kPeerLost || code == StatusCode::kAborted));
    CHECK_FALSE(handle->status().message().empty());
  }
  return has_failed;
}

// Its calls end when the test says so.
class HeldBackend final : public collectives::HostBackend {
 public:
  struct Call {
    collectives::Completion done;
    Event started;
  };
  explicit HeldBackend(Call& call) : call_(call) {}
  std::string_view name() const override { return "held"; }
  std::string why_not(const collectives::CallTraits&) const override { return ""; }
  void start(const collectives::CollectiveCall&, collectives::Completion done) override {
    call_.done = std::move(done);
    call_.started.set();
  }
  void abort(const Status&) override {}

 private:
  Call& call_;
};

bool collective_fails(int number) {
  INFO("allocation " << number);
  std::vector<float> data(1);
  HeldBackend::Call call;
  Rank rank(1, 2, [&call](const topology::ProcessSet&) {
    std::vector<std::unique_ptr<collectives::CollectiveBackend>> backends;
    backends.push_back(std::make_unique<HeldBackend>(call));
    return std::make_shared<collectives::BackendList>(std::move(backends));
  });
  rank.engine.attach(std::make_unique<KeptLinks>(rank.sent));
  const auto handle = rank.table.add(test::allreduce(kName, data));
  REQUIRE(handle.is_ok());
  rank.engine.notify();
  tell(rank, 0, wire::encode(release(false)), -1);
  REQUIRE(call.started.wait_for(kLimit));
  const bool has_failed = runs_out(rank, number, [&] {
    call.done(Status::internal(kName));
    REQUIRE(handle.value()->wait_for(kLimit));
  });
  CHECK_FALSE(handle.value()->status().is_ok());
  CHECK((has_failed || !rank.engine.stopped().is_set()));  // then rank 0 stops it
  return has_failed;
}

TEST_CASE("Wherever an engine gets no memory, nothing waits for ever", "[engine]") {
  const int own = GENERATE(0, 1);
  const bool in_second = GENERATE(false, true);
  int number = 0;
  while (fails(own, in_second, number)) ++number;
  CHECK(number > 5);
}

TEST_CASE("An engine that gets no memory for its end ends all the same", "[engine]") {
  const End end = GENERATE(from_range(kEnds));
  const int own = GENERATE(0, 1);
  const bool is_attached = GENERATE(true, false);
  int number = 0;
  while (end_fails(end, own, is_attached, number)) ++number;
  CHECK((number > 5 || !is_attached));
}

TEST_CASE("A thread that gets no memory to wake an engine does not silence all later ones", "[engine]") {
  std::vector<float> data(1);
  Rank rank(1, 2);
  rank.engine.attach(std::make_unique<KeptLinks>(rank.sent));
  runs_out(rank, -1, [] {});  // it sleeps again
  const auto handle = rank.table.add(test::allreduce(kName, data));
  REQUIRE(handle.is_ok());
  bool has_failed = false;
  allowed = 0;
  try {
    rank.engine.notify();
  } catch (const std::bad_alloc&) {
    has_failed = true;
  }
  allowed = -1;
  CHECK(has_failed);
  rank.engine.notify();
  tell(rank, 0, wire::encode(release(false)), -1);
  REQUIRE(handle.value()->wait_for(kLimit));
  CHECK(handle.value()->status().is_ok());
}

TEST_CASE("What it is told of a collective that failed ends too, without memory", "[engine]") {
  int number = 0;
  while (collective_fails(number)) ++number;
  CHECK(number > 5);
}

TEST_CASE("Nor do changes of process sets", "[engine]") {
  int number = 0;
  while (change_fails(number)) ++number;
  CHECK(number > 5);
}

}  // namespace
}  // namespace hvd::engine
