#include "runtime/transport/data/progress.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>

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

int checks_while_waiting(bool busy, Millis span) {
  Counter counter;
  Progress progress(counter);
  const Fd ready(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &counter;
  if (busy) REQUIRE(epoll_ctl(progress.epoll_fd(), EPOLL_CTL_ADD, ready.get(), &event) == 0);
  const auto end = Deadline::after(span);
  progress.wait([&] { return end.expired(); });
  CHECK((counter.events > 0) == busy);
  return counter.checks;
}

}  // namespace

TEST_CASE("Peers are looked at every second of a wait, whether or not others talk", "[multi][transport]") {
  for (const bool busy : {true, false}) {
    INFO("busy " << busy);
    const int checks = checks_while_waiting(busy, Millis(1500));
    CHECK(checks >= 2);  // at its beginning, and a second later
    CHECK(checks <= 3);
  }
}
