#include "runtime/base/thread.h"

#include <pthread.h>

#include <csignal>

#include <atomic>
#include <catch2/catch.hpp>
#include <latch>
#include <system_error>
#include <vector>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

// While it lives the process gets no thread: there is no address space for the stack of one.
struct NoThreads {
  NoThreads() {
    pthread_getattr_default_np(&usual);
    pthread_attr_t attributes = usual;
    pthread_attr_setstacksize(&attributes, std::size_t{1} << 47);
    REQUIRE(pthread_setattr_default_np(&attributes) == 0);
  }
  ~NoThreads() { pthread_setattr_default_np(&usual); }
  pthread_attr_t usual;
};

}  // namespace

#if defined(__x86_64__)
TEST_CASE("A thread of ours computes with the smallest numbers, also where the one that makes it does not",
          "[unit][base]") {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);
  unsigned there = 0;
  hvd::start_thread("hvd-test", [&](const std::stop_token&) { there = _mm_getcsr(); }).join();
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK((there & 0x8040) == 0);
  CHECK(after == (before | 0x8040));
}
#endif

TEST_CASE("start_thread names the thread and blocks signals in it, but for its own faults", "[unit][base]") {
  bool blocked = false;
  bool faults_blocked = true;
  char name[16] = {};
  hvd::start_thread("hvd-test", [&](const std::stop_token&) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGPIPE) == 1;
    faults_blocked = sigismember(&mask, SIGSEGV) == 1 || sigismember(&mask, SIGBUS) == 1;
    pthread_getname_np(pthread_self(), name, sizeof(name));
  }).join();
  CHECK(blocked);
  CHECK_FALSE(faults_blocked);
  CHECK(std::string(name) == "hvd-test");
  sigset_t own;
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  CHECK(sigismember(&own, SIGINT) == 0);
}

TEST_CASE("a thread that cannot be had is an exception, and leaves the caller's signals as they were", "[unit][base]") {
  const NoThreads nothing;
  CHECK_THROWS_AS(hvd::start_thread("hvd-test", [](const std::stop_token&) {}), std::system_error);
  sigset_t own;
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  CHECK(sigismember(&own, SIGINT) == 0);
}

TEST_CASE("A confined object belongs to the thread that asks first, until it is released", "[unit][base]") {
  hvd::ThreadChecker checker;
  const auto asked_elsewhere = [&] {
    bool is_current = false;
    std::thread([&] { is_current = checker.is_current(); }).join();
    return is_current;
  };
  CHECK(checker.is_current());
  CHECK_FALSE(asked_elsewhere());
  CHECK(checker.is_current());
  checker.release();
  CHECK(asked_elsewhere());
  CHECK_FALSE(checker.is_current());
}

TEST_CASE("for_each_at_once makes every call once, as many at a time as it may", "[unit][base]") {
  constexpr std::size_t kMost = 3;
  std::latch together(kMost);  // the first calls end only together
  std::vector<int> calls(20);
  std::atomic<std::size_t> running = 0;
  std::atomic<std::size_t> most = 0;
  hvd::for_each_at_once("hvd-test", calls.size(), kMost, [&](std::size_t i) {
    const std::size_t now = ++running;
    for (std::size_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    ++calls[i];
    if (i < kMost) together.arrive_and_wait();
    --running;
  });
  CHECK(calls == std::vector<int>(20, 1));
  CHECK(most == kMost);
}

TEST_CASE("for_each_at_once needs no other thread", "[unit][base]") {
  const NoThreads nothing;
  std::vector<std::thread::id> callers;
  hvd::for_each_at_once("hvd-test", 3, 3, [&](std::size_t) { callers.push_back(std::this_thread::get_id()); });
  CHECK(callers == std::vector(3, std::this_thread::get_id()));
}

TEST_CASE("for_each_at_once throws what a call has thrown, and begins no other", "[unit][base]") {
  std::atomic<int> calls = 0;
  const auto each = [&](std::size_t i) {
    ++calls;
    if (i == 2) throw std::runtime_error("the third");
  };
  CHECK_THROWS_WITH(hvd::for_each_at_once("hvd-test", 1000000, 2, each), "the third");
  CHECK(calls < 1000000);
}
