#include "runtime/base/event.h"

#include <catch2/catch.hpp>

#include "runtime/base/deadline.h"
#include "runtime/base/thread.h"
#include "runtime/base/work_queue.h"

using namespace hvd;

TEST_CASE("Event wakes a thread that waits and stays set", "[unit][base]") {
  for (int round = 0; round < 200; ++round) {
    Event event;
    auto setter = start_thread("setter", [&](const std::stop_token&) { event.set(); });
    event.wait();
    CHECK(event.is_set());
    CHECK(event.wait_for(Millis(0)));
    setter.join();
  }
}

TEST_CASE("Event::wait_for returns false when nobody sets it", "[unit][base]") {
  Event event;
  const auto start = SteadyClock::now();
  CHECK_FALSE(event.wait_for(Millis(20)));
  CHECK(SteadyClock::now() - start >= Millis(19));
}

TEST_CASE("WorkQueue hands items over in order and drains after close", "[unit][base]") {
  WorkQueue<int> queue;
  std::vector<int> seen;
  auto consumer = start_thread("consumer", [&](const std::stop_token&) {
    while (auto item = queue.pop()) seen.push_back(*item);
  });
  for (int i = 0; i < 1000; ++i) queue.push(i);
  queue.close();
  consumer.join();
  REQUIRE(seen.size() == 1000);
  for (int i = 0; i < 1000; ++i) CHECK(seen[static_cast<std::size_t>(i)] == i);
}
