#include "runtime/loop/loop.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <future>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"
#include "runtime/loop/poll.h"
#include "runtime/loop/timer.h"
#include "test/support/death.h"

using namespace hvd;
using loop::Loop;

TEST_CASE("A loop runs what is posted in order and on its own thread", "[unit][loop]") {
  Loop lp("test-loop");
  std::vector<int> seen;
  std::promise<bool> done;
  for (int i = 0; i < 100; ++i) REQUIRE(lp.post([&seen, i] { seen.push_back(i); }));
  lp.post([&] { done.set_value(lp.in_loop()); });
  CHECK(done.get_future().get());
  CHECK_FALSE(lp.in_loop());
  lp.stop_and_join();
  REQUIRE(seen.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(seen[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("A stopping loop runs what is posted, also by posted functions, then refuses", "[unit][loop]") {
  int runs = 0;
  Loop lp("test-loop");
  std::function<void()> again = [&] {
    if (++runs < 5) lp.post(again);
  };
  lp.post(again);
  lp.stop_and_join();
  CHECK(runs == 5);
  CHECK_FALSE(lp.post([&] { ++runs; }));
  lp.stop_and_join();
  CHECK(runs == 5);
}

TEST_CASE("What is posted quietly runs with what wakes the loop next, in its turn", "[unit][loop]") {
  Loop lp("test-loop");
  for (int i = 0; i < 100; ++i) {
    std::vector<int> seen;
    std::promise<void> done;
    REQUIRE(lp.post_quietly([&] { seen.push_back(1); }));
    if (i % 2 == 0) {
      lp.post([&] { seen.push_back(2); });
      lp.post([&] { done.set_value(); });
    } else {
      REQUIRE(lp.post_quietly([&] {
        seen.push_back(2);
        done.set_value();
      }));
      lp.wake();
    }
    REQUIRE(done.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    CHECK(seen == std::vector<int>{1, 2});
  }
  bool ran = false;
  CHECK(lp.post_quietly([&] { ran = true; }));
  lp.stop_and_join();
  CHECK(ran);
  CHECK_FALSE(lp.post_quietly([] {}));
  lp.wake();
}

TEST_CASE("Posts from many threads all run", "[unit][loop]") {
  Loop lp("test-loop");
  int sum = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) lp.post([&] { ++sum; });
      });
    }
  }
  lp.stop_and_join();
  CHECK(sum == 4000);
}

TEST_CASE("A timer fires, repeats and may destroy itself", "[unit][loop]") {
  Loop lp("test-loop");
  std::unique_ptr<loop::Timer> timer;
  int fired = 0;
  std::promise<void> done;
  lp.post([&] {
    timer = std::make_unique<loop::Timer>(lp.uv(), [&] {
      if (++fired == 3) {
        timer.reset();
        done.set_value();
      }
    });
    timer->start_repeating(Millis(1));
  });
  done.get_future().get();
  lp.stop_and_join();
  CHECK(fired == 3);
}

TEST_CASE("Handles left on a loop are closed when it stops and freed by their owners later", "[unit][loop]") {
  std::unique_ptr<loop::Timer> timer;
  std::unique_ptr<loop::Poll> poll;
  Pipe pipe = make_pipe().value();
  {
    Loop lp("test-loop");
    lp.post([&] {
      timer = std::make_unique<loop::Timer>(lp.uv(), [] {});
      timer->start(Millis(60000));
      poll = std::make_unique<loop::Poll>(lp.uv(), pipe.read_end.get(), [](bool, bool) {});
      poll->watch(true, false);
    });
  }
  timer.reset();
  poll.reset();
}

TEST_CASE("A poll tells when its descriptor becomes readable", "[unit][loop]") {
  Loop lp("test-loop");
  Pipe pipe = make_pipe().value();
  std::unique_ptr<loop::Poll> poll;
  std::promise<bool> readable;
  lp.post([&] {
    poll = std::make_unique<loop::Poll>(lp.uv(), pipe.read_end.get(), [&](bool r, bool) {
      poll.reset();
      readable.set_value(r);
    });
    poll->watch(true, false);
  });
  REQUIRE(write_all(pipe.write_end.get(), "x", 1).is_ok());
  CHECK(readable.get_future().get());
  lp.stop_and_join();
}

#ifndef NDEBUG
TEST_CASE("A timer or a watch that another thread than its loop's touches aborts where checks are on", "[unit][loop]") {
  const auto on_this_thread = [](const std::function<void(loop::Timer&, loop::Poll&)>& touch) {
    return test::abort_text([&] {
      int pipe[2] = {};
      HVD_CHECK(::pipe(pipe) == 0, "pipe");
      Loop lp("test-loop");
      std::unique_ptr<loop::Timer> timer;
      std::unique_ptr<loop::Poll> watch;
      std::promise<void> made;
      lp.post([&] {
        timer = std::make_unique<loop::Timer>(lp.uv(), [] {});
        timer->start(Millis(1000));
        watch = std::make_unique<loop::Poll>(lp.uv(), pipe[0], [](bool, bool) {});
        made.set_value();
      });
      made.get_future().get();
      touch(*timer, *watch);
      lp.stop_and_join();
    });
  };
  CHECK(on_this_thread([](loop::Timer&, loop::Poll&) {}) == "");
  CHECK_THAT(on_this_thread([](loop::Timer& timer, loop::Poll&) { timer.stop(); }),
             Catch::Contains("a timer belongs to its loop's thread"));
  CHECK_THAT(on_this_thread([](loop::Timer&, loop::Poll& watch) { watch.watch(true, false); }),
             Catch::Contains("belongs to its loop's thread"));
}
#endif
