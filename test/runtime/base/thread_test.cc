#include "runtime/base/thread.h"

#include <pthread.h>

#include <csignal>

#include <catch2/catch.hpp>

TEST_CASE("start_thread names the thread and blocks every signal in it", "[unit][base]") {
  bool blocked = false;
  char name[16] = {};
  hvd::start_thread("hvd-test", [&](const std::stop_token&) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGPIPE) == 1;
    pthread_getname_np(pthread_self(), name, sizeof(name));
  }).join();
  CHECK(blocked);
  CHECK(std::string(name) == "hvd-test");
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
