// An engine whose memory ends at any one of its allocations.
#include <catch2/catch.hpp>
#include <cstdlib>
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

// Uses a tensor twice, and allocation `number` of the engine fails at the first or second time. False: there are fewer.
bool fails(int own, bool in_second, int number) {
  INFO("rank " << own << ", use " << 1 + in_second << ", allocation " << number);
  std::vector<float> data(1);
  Rank rank(own, 2);
  rank.engine.attach(std::make_unique<KeptLinks>(rank.sent));
  for (const bool again : {false, true}) {
    const auto handle = rank.table.add(test::allreduce(kName, data));
    REQUIRE(handle.is_ok());
    if (own == 1) rank.engine.notify();
    bool has_failed = false;
    Event handled;
    const Bytes message = own == 0 ? wire::encode(request(again)) : wire::encode(release(again));
    rank.engine.loop().post([&] {
      allowed = again == in_second ? number : -1;
      rank.engine.on_control_message(1 - own, message);
      has_failed = again == in_second && allowed < 0;
      allowed = -1;
      handled.set();
    });
    REQUIRE(handled.wait_for(kLimit));
    REQUIRE(handle.value()->wait_for(kLimit));
    const Status status = handle.value()->status();
    if (!status.is_ok()) {
      REQUIRE(has_failed);
      CHECK(status.code() == StatusCode::kPeerLost);
      CHECK(rank.engine.stopped().is_set());
    }
    if (again == in_second) return has_failed;  // what can do without, as a record of the end, may fail unseen
  }
  return false;
}

TEST_CASE("Wherever an engine gets no memory, nothing waits for ever", "[engine]") {
  const int own = GENERATE(0, 1);
  const bool in_second = GENERATE(false, true);
  int number = 0;
  while (fails(own, in_second, number)) ++number;
  CHECK(number > 5);
}

}  // namespace
}  // namespace hvd::engine
