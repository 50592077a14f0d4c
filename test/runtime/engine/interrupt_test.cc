// Ctrl-C while ranks come together.
#include <catch2/catch.hpp>

#include "runtime/base/event.h"
#include "runtime/base/thread.h"
#include "runtime/engine/network.h"
#include "runtime/topology/tree_plan.h"
#include "test/runtime/engine/session_support.h"
#include "test/support/job_fixture.h"

using namespace hvd;
using namespace hvd::test;

namespace {

class Deaf final : public transport::ControlHandler {
  void on_control_message(int, ByteSpan) override {}
  void on_control_lost(int, const Status&) override {}
};

// Comes to the store, perhaps connects, and then says nothing until `end`.
void half_a_rank(const config::RuntimeConfig& config, bool connects, Event& there, Event& end) {
  const Deadline deadline = Deadline::after(kLimit);
  const auto network = engine::Network::join(config, {});
  if (!network.is_ok() || !network.value()->reach({}).is_ok()) return there.set();
  loop::Loop loop("half");
  Deaf handler;
  std::unique_ptr<transport::ControlLinks> links;
  if (connects) {
    const topology::TreePlan plan(config.size);
    auto connected = network.value()->fabric().connect_control(
        loop.uv(), [&](std::function<void()> fn) { loop.post(std::move(fn)); }, plan.parent(config.rank),
        plan.children(config.rank), handler, deadline);
    if (connected.is_ok()) links = std::move(connected).value();
  }
  there.set();
  end.wait_for(kLimit);
  loop.post([&] { links.reset(); });
  loop.stop_and_join();
}

}  // namespace

TEST_CASE("An interrupt ends init() while other ranks do not connect or do not answer", "[multi][engine]") {
  const int rank = GENERATE(0, 1);
  const bool connects = GENERATE(false, true);
  JobFixture job(2);
  Event there;
  Event end;
  std::stop_source user;
  TimePoint pressed;
  Result<std::unique_ptr<Session>> session = Status::internal("not started");
  {
    const auto other =
        start_thread("half", [&](const std::stop_token&) { half_a_rank(job.config(1 - rank), connects, there, end); });
    const auto finger = start_thread("finger", [&](const std::stop_token&) {
      there.wait_for(kLimit);
      Event never;
      never.wait_for(Millis(50));  // so that it most likely comes when this rank is as far as it gets
      pressed = SteadyClock::now();
      user.request_stop();
    });
    session = Session::start(job.config(rank), user.get_token());
    end.set();
  }
  CHECK(session.status().code() == StatusCode::kAborted);
  CHECK(SteadyClock::now() - pressed < Millis(6000));
}
