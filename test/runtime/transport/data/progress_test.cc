#include "runtime/transport/data/progress.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "test/support/soonest.h"

using namespace hvd;
using namespace hvd::transport;

namespace {

// Counts what it is called for and never reads: its descriptor stays ready.
struct Counter final : IoHandler {
  bool on_io(void*, bool, bool) override {
    ++events;
    return false;
  }
  void check_liveness() override { ++checks; }
  int events = 0;
  int checks = 0;
};

// How long a wait takes in which peers are looked at twice.
SteadyClock::duration time_of_two_checks(bool busy) {
  Counter counter;
  Progress progress(counter);
  const Fd ready(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &counter;
  if (busy) REQUIRE(epoll_ctl(progress.epoll_fd(), EPOLL_CTL_ADD, ready.get(), &event) == 0);
  const auto begin = SteadyClock::now();
  const auto end = Deadline::after(Millis(20000));
  progress.wait([&] { return counter.checks >= 2 || end.expired(); });
  const auto took = SteadyClock::now() - begin;
  CHECK(counter.checks == 2);
  CHECK((counter.events > 0) == busy);
  CHECK(took >= Millis(1000));  // at its beginning, and a second later
  return took;
}

}  // namespace

TEST_CASE("Peers are looked at every second of a wait, whether or not others talk", "[multi][transport]") {
  for (const bool busy : {true, false}) {
    INFO("busy " << busy);
    constexpr Millis kLate{1500};
    CHECK(test::soonest(kLate, [&] { return time_of_two_checks(busy); }) < kLate);
  }
}
