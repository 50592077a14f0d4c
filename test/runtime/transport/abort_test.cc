// Waits that end because a rank gives a context up, or closes.
#include <gloo/transport/unbound_buffer.h>

#include <future>
#include <latch>

#include "runtime/transport/data/gloo_context.h"
#include "test/runtime/transport/gloo_group.h"
#include "test/support/soonest.h"

using namespace hvd;

namespace {

using ContextPtr = std::shared_ptr<gloo::Context>;

constexpr Millis kAtOnce{400};  // before anybody looks again by himself, which is once a second

// What `abort` does to twelve waiters in contexts of their own; how long until the last is awake.
SteadyClock::duration time_to_wake(const std::function<void(transport::Fabric&, const Status&)>& abort) {
  test::FabricGroup group(3);
  std::vector<std::jthread> waiters;
  std::vector<std::future<void>> woken;
  std::vector<std::string> errors(12);
  std::latch have_contexts(12);
  for (std::size_t i = 0; i < 12; ++i) {
    auto promise = std::make_shared<std::promise<void>>();
    woken.push_back(promise->get_future());
    waiters.emplace_back([&, i, promise] {
      try {
        auto context = group.fabrics[0]->make_context(i, {0, 1, 2}).value();
        have_contexts.count_down();
        std::vector<std::uint8_t> memory(1U << 20U);
        auto buffer = context->createUnboundBuffer(memory.data(), memory.size());
        if (i % 2 == 0) {
          buffer->recv(static_cast<int>(i % 3 == 0 ? 1 : 2), 1);
          buffer->waitRecv();
        } else {
          buffer->send(static_cast<int>(i % 3 == 0 ? 1 : 2), 1);
          buffer->waitSend();
        }
      } catch (const std::exception& e) {
        errors[i] = e.what();
      }
      promise->set_value();
    });
  }
  have_contexts.wait();
  std::this_thread::sleep_for(Millis(100));  // so that most of them sleep; whoever does not fails all the same
  const auto start = SteadyClock::now();
  abort(*group.fabrics[0], Status::peer_lost("rank 2 on host b died"));
  for (auto& awake : woken) REQUIRE(awake.wait_for(Millis(5000)) == std::future_status::ready);
  const auto took = SteadyClock::now() - start;
  waiters.clear();
  for (const std::string& error : errors) CHECK(error == "rank 2 on host b died");
  return took;
}

}  // namespace

TEST_CASE("An abort wakes every waiter of every context at once", "[multi][transport]") {
  const Millis took = test::soonest(kAtOnce, [] {
    return time_to_wake([](transport::Fabric& fabric, const Status& why) {
      fabric.abort(why);
      // Later waits fail too, and so does a new context.
      CHECK(fabric.make_context(99, {0, 1}).status().message() == "rank 2 on host b died");
    });
  });
  CHECK(took < kAtOnce);
}

TEST_CASE("An abort of one context after another wakes its waiters at once, and leaves others alone",
          "[multi][transport]") {
  const Millis took = test::soonest(kAtOnce, [] {
    return time_to_wake([](transport::Fabric& fabric, const Status& why) {
      for (std::uint64_t id = 0; id < 12; ++id) fabric.abort_context(id, why);
      CHECK(fabric.make_context(99, {0, 1}).is_ok());
    });
  });
  CHECK(took < kAtOnce);
}

TEST_CASE("A peer that closes in order fails the waits for it and no others", "[multi][transport]") {
  test::FabricGroup group(3);
  std::vector<ContextPtr> contexts;
  for (auto& fabric : group.fabrics) contexts.push_back(fabric->make_context(1, {0, 1, 2}).value());
  std::uint32_t value = 0;
  std::vector<std::string> errors = test::run_all({
      [&] {
        auto from_1 = contexts[0]->createUnboundBuffer(&value, sizeof(value));
        from_1->recv(1, 1);
        from_1->waitRecv();
        std::uint32_t other = 0;
        auto buffer = contexts[0]->createUnboundBuffer(&other, sizeof(other));
        buffer->recv(1, 2);
        buffer->waitRecv();
      },
      [&] {
        std::uint32_t sent = 42;
        auto buffer = contexts[1]->createUnboundBuffer(&sent, sizeof(sent));
        buffer->send(0, 1);
        buffer->waitSend();
        buffer.reset();
        contexts[1].reset();
        group.fabrics[1].reset();
      },
  });
  CHECK(value == 42);
  CHECK(errors[0].find("lost rank 1 on host ") == 0);
  CHECK(errors[1] == "");
  errors = test::run_all({
      [&] {
        auto buffer = contexts[0]->createUnboundBuffer(&value, sizeof(value));
        buffer->recv(2, 3);
        buffer->waitRecv();
      },
      [&] {
        std::uint32_t sent = 43;
        auto buffer = contexts[2]->createUnboundBuffer(&sent, sizeof(sent));
        buffer->send(0, 3);
        buffer->waitSend();
      },
  });
  CHECK(value == 43);
  CHECK(errors == std::vector<std::string>{"", ""});
}

TEST_CASE("A context that outlives its fabric fails in words", "[multi][transport]") {
  test::FabricGroup group(2);
  auto context = group.fabrics[0]->make_context(1, {0, 1}).value();
  std::uint32_t value = 0;
  auto buffer = context->createUnboundBuffer(&value, sizeof(value));
  buffer->recv(1, 1);
  group.fabrics[0].reset();
  CHECK_THROWS_WITH(buffer->waitRecv(), "the session was shut down");
  CHECK_THROWS_WITH(buffer->send(1, 1), "the session was shut down");
}
