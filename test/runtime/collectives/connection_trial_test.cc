#include "runtime/collectives/connection_trial.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>

#include "runtime/base/deadline.h"
#include "runtime/collectives/memory.h"

namespace hvd::collectives {
namespace {

constexpr int kCalls = ConnectionTrial::kUnmeasured + ConnectionTrial::kMeasured;

// What two members that measure the same come to use. `seconds`: of a byte, over so many connections, in the n-th call.
int chosen(const std::function<double(int connections, int call)>& seconds) {
  ConnectionTrial trial;
  for (int call = 0; !trial.is_over(); ++call) {
    REQUIRE(call < 3 * kCalls);
    trial.add(seconds(trial.to_try(), call));
    if (!trial.is_due()) continue;
    const auto [used, other] = trial.medians();
    trial.decide({used, other});
  }
  return trial.best();
}

// Of a network in which each connection carries 1, and all together `ways`.
double bounded(int connections, double ways) { return 1 / std::min(static_cast<double>(connections), ways); }

// A backend whose calls take at least so long for a byte, or give results that a test has chosen.
struct Scripted final : CollectiveBackend {
  std::string_view name() const override { return "scripted"; }
  std::string why_not(const CallTraits&) const override { return ""; }
  void start(const CollectiveCall& call, Completion done) override {
    ++calls;
    on_call();
    const std::chrono::duration<double> takes(seconds_per_byte * 4 * static_cast<double>(call.count));
    for (const TimePoint begin = SteadyClock::now(); SteadyClock::now() - begin < takes;) continue;
    if (agreed) {
      CHECK(call.dtype == DataType::kFloat64);
      CHECK(call.reduce_op == ReduceOp::kMin);
      REQUIRE(call.count == 2);
      auto* const values = static_cast<double*>(call.output);
      measured = {values[0], values[1]};
      std::ranges::copy(*agreed, values);
    }
    done(end);
  }
  const Memory& memory(MemoryKind) const override { return host_memory(); }
  std::shared_ptr<void> allocate_staging(MemoryKind, std::size_t) override { return nullptr; }
  void abort(const Status&) override {}

  std::function<void()> on_call = [] {};
  double seconds_per_byte = 0;
  Status end;
  std::optional<std::array<double, 2>> agreed;
  std::array<double, 2> measured{};
  int calls = 0;
};

struct Tried {
  explicit Tried(int members = 2) {
    auto owned = std::make_unique<Scripted>();
    inner = owned.get();
    inner->on_call = [this] { tried.push_back(used); };
    backend = std::make_unique<TrialBackend>(std::move(owned), agreer, members, [this](int n) { used = n; });
  }
  Status allreduce(std::int64_t bytes, OpType op = OpType::kAllreduce) {
    CollectiveCall call;
    call.op = op;
    call.count = bytes / 4;
    std::optional<Status> end;
    backend->start(call, [&](Status status) { end = std::move(status); });
    return end.value();
  }
  void compare(double other_takes) {
    tried.clear();
    agreer.agreed = {1.0, other_takes};
    for (int i = 0; i < kCalls; ++i) CHECK(allreduce(4 << 20).is_ok());
  }

  Scripted agreer;
  Scripted* inner = nullptr;
  std::unique_ptr<TrialBackend> backend;
  int used = 0;            // 0: not said
  std::vector<int> tried;  // in each call
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
  CHECK(std::ranges::count(tried.tried, 1) == ConnectionTrial::kMeasured / 2);
  CHECK(std::ranges::count(tried.tried, 4) == ConnectionTrial::kMeasured / 2 + ConnectionTrial::kUnmeasured);
  CHECK(tried.used == 4);
  tried.compare(0.9);
  CHECK(std::ranges::count(tried.tried, 4) == ConnectionTrial::kMeasured / 2);
  CHECK(std::ranges::count(tried.tried, 8) == ConnectionTrial::kMeasured / 2 + ConnectionTrial::kUnmeasured);
  tried.compare(1.2);
  CHECK(std::ranges::count(tried.tried, 2) == ConnectionTrial::kMeasured / 2 + ConnectionTrial::kUnmeasured);
  CHECK(tried.agreer.calls == 3);
  // No more trials, nor calls of others.
  tried.compare(0.1);
  CHECK(std::ranges::count(tried.tried, 4) == kCalls);
  CHECK(tried.agreer.calls == 3);
  CHECK(tried.inner->calls == 4 * kCalls);
}

TEST_CASE("Members agree on what a byte took", "[unit][collectives]") {
  Tried tried;
  constexpr double kByte = 2e-11;  // at least
  tried.inner->on_call = [&] { tried.inner->seconds_per_byte = tried.used == 4 ? 20 * kByte : kByte; };
  tried.compare(1);
  const auto [used, other] = tried.agreer.measured;
  CHECK(used >= kByte);
  CHECK(used < other);
  CHECK(other >= 20 * kByte);
  CHECK(other < 1e5 * kByte);
}

TEST_CASE("Small allreduces and other operations are not tried, and have the number that is best so far",
          "[unit][collectives]") {
  Tried tried(64);
  CHECK(tried.allreduce((16 << 20) - 4).is_ok());  // less than 256 KiB for each member
  CHECK(tried.allreduce(16 << 20, OpType::kBroadcast).is_ok());
  CHECK(tried.allreduce(16 << 20).is_ok());
  CHECK(tried.allreduce(16 << 20, OpType::kBroadcast).is_ok());
  CHECK(tried.tried == std::vector{0, 0, 4, 1});
}

TEST_CASE("A call that fails in a trial, or on whose measurements nobody agrees, fails", "[unit][collectives]") {
  Tried tried;
  tried.inner->end = Status::peer_lost("gone");
  CHECK(tried.allreduce(4 << 20).to_string() == "peer lost: gone");
  CHECK(tried.used == 1);
  tried.inner->end = Status::ok();
  tried.agreer.end = Status::peer_lost("gone, too");
  for (int i = 1; i < kCalls; ++i) CHECK(tried.allreduce(4 << 20).is_ok());
  CHECK(tried.allreduce(4 << 20).to_string() == "peer lost: gone, too");
  CHECK(tried.used == 1);
}

}  // namespace hvd::collectives
