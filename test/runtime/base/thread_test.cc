#include "runtime/base/thread.h"

#include <pthread.h>

#include <csignal>

#include <catch2/catch.hpp>
#include <system_error>

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
