// A network that loses everything between two ranks: no end of file, no reset, only silence. The program lives in a
// network namespace of its own, and its ranks talk over that namespace's loopback interface, which the test takes down.
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>

#include <future>
#include <iostream>

#include "runtime/transport/data/gloo_context.h"
#include "test/runtime/transport/gloo_group.h"
#include "test/runtime/transport/process_ranks.h"

using namespace hvd;
using test::ProcessRanks;

namespace {

Status set_loopback(bool up) {
  const Fd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::memcpy(request.ifr_name, "lo", 3);
  if (ioctl(any.get(), SIOCGIFFLAGS, &request) != 0) return Status::from_errno("SIOCGIFFLAGS", errno);
  request.ifr_flags = static_cast<short>(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
  if (ioctl(any.get(), SIOCSIFFLAGS, &request) != 0) return Status::from_errno("SIOCSIFFLAGS", errno);
  return Status::ok();
}

// Moves the calling thread, and what it starts later, into a network without any other process. Once per program.
Status enter_namespace() {
  static const Status entered = [] {
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
      return Status::from_errno("unshare(CLONE_NEWNET)", errno);
    }
    return set_loopback(true);
  }();
  return entered;
}

// True, and says why, when this machine allows no namespaces. CMakeLists.txt makes that a skipped test.
bool cannot_run() {
  const Status entered = enter_namespace();
  if (!entered.is_ok()) std::cout << "SKIPPED: no network namespace here: " << entered.message() << std::endl;
  return !entered.is_ok();
}

constexpr std::size_t kMessage = 16U << 20U;
constexpr int kCredits =
    1000;  // many in advance, so that the sender always has something to send and both buffers are full

// Sends without an end from rank 0 to rank 1; yields the error that ends it.
std::string send_until_lost(transport::Fabric& fabric, std::atomic<int>& sent) {
  std::vector<std::uint8_t> memory(kMessage, 1);
  try {
    auto context = fabric.make_context(1, {0, 1}).value();
    auto buffer = context->createUnboundBuffer(memory.data(), memory.size());
    for (;;) {
      buffer->send(1, 1);
      buffer->waitSend();
      ++sent;
    }
  } catch (const transport::WaitError& e) {
    return e.what();
  }
}
void receive_many(transport::Fabric& fabric) {
  std::vector<std::uint8_t> memory(kMessage);
  auto context = fabric.make_context(1, {0, 1}).value();
  auto buffer = context->createUnboundBuffer(memory.data(), memory.size());
  for (int i = 0; i < kCredits; ++i) buffer->recv(0, 1);
  for (;;) buffer->waitRecv();
}

// Sends a little and then waits for what never comes: nothing is under way.
std::string wait_until_lost(transport::Fabric& fabric, std::atomic<int>& sent) {
  std::vector<std::uint8_t> memory(kMessage, 1);
  try {
    auto context = fabric.make_context(1, {0, 1}).value();
    auto buffer = context->createUnboundBuffer(memory.data(), memory.size());
    for (; sent < 2; ++sent) {
      buffer->send(1, 1);
      buffer->waitSend();
    }
    buffer->recv(1, 2);
    for (;;) buffer->waitRecv();
  } catch (const transport::WaitError& e) {
    return e.what();
  }
}

// Rank 0 does `work` with rank 1 until `disturb` has done its own; how long it took to notice, and what it said.
struct Notice {
  Millis after;
  std::string error;
};
// Connections: of two, one may be through with its part of a message, and then keepalive judges it (below).
constexpr int kNeverQuiet = 1;
using Work = std::string (*)(transport::Fabric&, std::atomic<int>&);
Notice notice_after(Work work, int sockets, const std::function<void(ProcessRanks&)>& disturb, Millis patience) {
  ProcessRanks ranks(2, receive_many, sockets);
  std::atomic<int> sent{0};
  auto noticed = std::async(std::launch::async, [&] {
    std::string error = work(*ranks.fabric, sent);
    return std::pair(SteadyClock::now(), std::move(error));
  });
  const auto connecting = Deadline::after(Millis(10000));
  while (sent < 2 && !connecting.expired()) std::this_thread::sleep_for(Millis(5));
  REQUIRE(sent >= 2);
  disturb(ranks);
  REQUIRE(set_loopback(false).is_ok());
  const auto start = SteadyClock::now();
  const bool in_time = noticed.wait_for(patience) == std::future_status::ready;
  if (!in_time) ranks.fabric->abort(Status::aborted("not noticed"));
  const auto [when, error] = noticed.get();
  REQUIRE(set_loopback(true).is_ok());
  return {std::chrono::duration_cast<Millis>(when - start), error};
}

}  // namespace

TEST_CASE("A network that loses everything in the middle of a message is noticed", "[multi][transport]") {
  if (cannot_run()) return;
  const Notice notice = notice_after(send_until_lost, kNeverQuiet, [](ProcessRanks&) {}, Millis(10000));
  CHECK_THAT(notice.error, Catch::StartsWith("lost rank 1 on host "));
  CHECK_THAT(notice.error, Catch::Contains("no sign of life from its host for "));
  CHECK(notice.after >= Millis(5900));  // a shorter silence is none
}

// The kernel's keepalive counts from the last packet: it asks after 3 s, and three answers are missing then.
TEST_CASE("A network that is lost between two ranks that are quiet is noticed", "[multi][transport]") {
  if (cannot_run()) return;
  constexpr Millis kQuiet{2000};
  const auto quiet = [&](ProcessRanks&) { std::this_thread::sleep_for(kQuiet); };  // the time itself is what is tried
  const Notice notice = notice_after(wait_until_lost, kNeverQuiet + 1, quiet, Millis(10000));
  CHECK_THAT(notice.error, Catch::Contains("no sign of life from its host ("));
  CHECK(notice.after >= Millis(2900));
  CHECK(notice.after < Millis(5900));
}

TEST_CASE("The host of a stopped process with a full window goes: its silence is noticed", "[multi][transport]") {
  if (cannot_run()) return;
  const Notice notice = notice_after(
      send_until_lost, kNeverQuiet,
      [](ProcessRanks& ranks) {
        kill(ranks.pid(1), SIGSTOP);
        std::this_thread::sleep_for(Millis(8000));  // longer than a silence may last: its kernel answers
      },
      Millis(20000));  // the kernel asks ever more seldom
  CHECK_THAT(notice.error, Catch::Contains("no sign of life from its host for "));
  CHECK(notice.after >= Millis(5900));
}
