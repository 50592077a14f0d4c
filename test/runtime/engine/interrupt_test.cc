// Ctrl-C while ranks come together.
#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "rendezvous/protocol/agent_socket.h"
#include "runtime/base/event.h"
#include "runtime/base/socket_io.h"
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

TEST_CASE("An interrupt ends init() while the agent does not answer", "[multi][engine]") {
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::array<std::uint8_t, rendezvous::kAgentSocketRandomBytes> random{};
  crypto::random_bytes(random);
  JobFixture job(2);
  config::RuntimeConfig config = job.config(0);
  config.agent_socket = std::string(rendezvous::kAgentSocketPrefix) + to_hex(random);
  const AbstractAddress address(config.agent_socket);
  REQUIRE(::bind(listener.get(), address.get(), address.size()) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  std::stop_source user;
  Event end;
  const auto finger = start_thread("finger", [&](const std::stop_token&) {
    const Fd rank(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    user.request_stop();
    for (const Deadline limit = Deadline::after(kLimit); !end.is_set() && !limit.expired();) end.wait_for(kLimit);
  });
  CHECK(Session::start(config, user.get_token()).status().code() == StatusCode::kAborted);  // not the end of the wait
  end.set();
}
