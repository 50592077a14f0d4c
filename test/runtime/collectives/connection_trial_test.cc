#include "runtime/collectives/connection_trial.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>

#include "runtime/collectives/memory.h"

namespace hvd::collectives {
namespace {

constexpr int kCalls = ConnectionTrial::kUnmeasured + ConnectionTrial::kMeasured;

// What two members that measure the same come to use. `seconds`: of a byte, over so many connections, in the n-th call.
int chosen(const std::function<double(int connections, int call)>& seconds) {
  ConnectionTrial trial;
  for (int call = 0; !trial.is_over(); ++call) {
    REQUIRE(call < 3 * kCalls);
    trial.add(seconds(trial.connections(), call));
    if (!trial.is_due()) continue;
    const auto [used, other] = trial.medians();
    trial.decide({2 * used, 2 * other});
  }
  return trial.connections();
}

// Of a network in which each connection carries 1, and all together `ways`.
double bounded(int connections, double ways) { return 1 / std::min(static_cast<double>(connections), ways); }

// A backend that writes down its calls, and gives results that a test has chosen.
struct Scripted final : CollectiveBackend {
  std::string_view name() const override { return "scripted"; }
  std::string why_not(const CallTraits&) const override { return ""; }
  void start(const CollectiveCall& call, Completion done) override {
    ++calls;
    if (sums) {
      CHECK(call.dtype == DataType::kFloat64);
      REQUIRE(call.count == 2);
      std::ranges::copy(*sums, static_cast<double*>(call.output));
    }
    done(end);
  }
  const Memory& memory(MemoryKind) const override { return host_memory(); }
  std::shared_ptr<void> allocate_staging(MemoryKind, std::size_t) override { return nullptr; }
  void abort(const Status&) override {}

  int calls = 0;
  Status end;
  std::optional<std::array<double, 2>> sums;
};

struct Tried {
  explicit Tried(int members = 2) {
    auto owned = std::make_unique<Scripted>();
    inner = owned.get();
    backend = std::make_unique<TrialBackend>(std::move(owned), adder, members, [this](int n) { used.push_back(n); });
  }
  Status allreduce(std::int64_t bytes, OpType op = OpType::kAllreduce) {
    CollectiveCall call;
    call.op = op;
    call.dtype = DataType::kUint8;
    call.count = bytes;
    std::optional<Status> end;
    backend->start(call, [&](Status status) { end = std::move(status); });
    return end.value();
  }
  void compare(double other_took_times) {
    adder.sums = {1.0, other_took_times};
    for (int i = 0; i < kCalls; ++i) CHECK(allreduce(4 << 20).is_ok());
  }

  Scripted adder;
  Scripted* inner = nullptr;
  std::unique_ptr<TrialBackend> backend;
  std::vector<int> used;
};

}  // namespace

TEST_CASE("A trial finds as many connections as the network pays for", "[unit][collectives]") {
  const auto among = [](double ways) {
    return chosen([=](int connections, int) { return bounded(connections, ways); });
  };
  CHECK(among(1) == 1);
  CHECK(among(1.2) == 1);
  CHECK(among(2) == 2);
  CHECK(among(4) == 4);
  CHECK(among(8) == 8);
  CHECK(among(100) == 8);
  CHECK(chosen([](int connections, int) { return 1 + 0.03 * connections; }) == 1);  // they share a link, at a cost
}

TEST_CASE("A trial is not misled by what changes meanwhile", "[unit][collectives]") {
  const auto shared = [](double connections) { return 1 + 0.02 * connections; };
  // The network or the machine gets slower, or faster, in the course of it.
  CHECK(chosen([&](int n, int call) { return shared(n) * (1 + 0.1 * call); }) == 1);
  CHECK(chosen([&](int n, int call) { return shared(n) / (1 + 0.1 * call); }) == 1);
  CHECK(chosen([&](int n, int call) { return bounded(n, 4) * (1 + 0.1 * call); }) == 4);
  // Sizes in turns, of which one costs twice as much for a byte; calls that something else holds up.
  for (const double costs : {2.0, 10.0}) {
    for (int period = 2; period < 10; ++period) {
      for (int which = 0; which < period; ++which) {
        const auto turns = [&](int call) { return call % period == which ? costs : 1; };
        CHECK(chosen([&](int n, int call) { return shared(n) * turns(call); }) == 1);
        CHECK(chosen([&](int n, int call) { return bounded(n, 2) * turns(call); }) == 2);
        CHECK(chosen([&](int n, int call) { return bounded(n, 8) * turns(call); }) == 8);
      }
    }
  }
  // Connections are slow while they are new.
  CHECK(chosen([&](int n, int call) { return bounded(n, 8) * (call % kCalls < 2 ? 20 : 1); }) == 8);
}

TEST_CASE("A trial tries both numbers equally often, and then uses the better one", "[unit][collectives]") {
  Tried tried;
  tried.compare(0.3);
  CHECK(std::ranges::count(tried.used, 1) == ConnectionTrial::kMeasured / 2);
  CHECK(std::ranges::count(tried.used, 4) == ConnectionTrial::kMeasured / 2 + ConnectionTrial::kUnmeasured);
  CHECK(tried.used.back() == 8);  // next
  tried.used.clear();
  tried.compare(0.9);
  CHECK(std::ranges::count(tried.used, 4) == ConnectionTrial::kMeasured / 2);
  CHECK(tried.used.back() == 2);
  tried.compare(1.2);
  CHECK(tried.used.back() == 4);
  CHECK(tried.adder.calls == 3);
  // No more trials, nor calls of others.
  tried.used.clear();
  tried.compare(0.1);
  CHECK(tried.used.empty());
  CHECK(tried.adder.calls == 3);
  CHECK(tried.inner->calls == 4 * kCalls);
}

TEST_CASE("Small allreduces and other operations are not tried", "[unit][collectives]") {
  Tried tried(64);
  CHECK(tried.allreduce((16 << 20) - 1).is_ok());  // 256 KiB for each member
  CHECK(tried.allreduce(16 << 20, OpType::kBroadcast).is_ok());
  CHECK(tried.used.empty());
  CHECK(tried.allreduce(16 << 20).is_ok());
  CHECK(tried.used == std::vector{4});
  CHECK(tried.inner->calls == 3);
}

TEST_CASE("A call that fails in a trial, or whose measurements cannot be added up, fails", "[unit][collectives]") {
  Tried tried;
  tried.inner->end = Status::peer_lost("gone");
  CHECK(tried.allreduce(4 << 20).to_string() == "peer lost: gone");
  tried.inner->end = Status::ok();
  tried.adder.end = Status::peer_lost("gone, too");
  for (int i = 1; i < kCalls; ++i) CHECK(tried.allreduce(4 << 20).is_ok());
  CHECK(tried.allreduce(4 << 20).to_string() == "peer lost: gone, too");
}

}  // namespace hvd::collectives
