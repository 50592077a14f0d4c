#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "horovod/session.h"

namespace hvd::test {

// While it lives, `session` is that of the rank which this thread plays.
class OwnSession {
 public:
  explicit OwnSession(Session& session) { current() = &session; }
  ~OwnSession() { current() = nullptr; }
  OwnSession(const OwnSession&) = delete;
  OwnSession& operator=(const OwnSession&) = delete;

  // For whoever has waited in vain: ends the session, after which nothing touches a tensor that was given to it. So the
  // test can look at its tensors, or let them go, and has no race with what it has just found to be too late. Where the
  // thread has no session, the program ends.
  static void give_up(const std::string& why) {
    if (current() == nullptr) {
      std::fprintf(stderr, "%s, and may still write to its tensor\n", why.c_str());
      std::abort();
    }
    current()->announce_failure(why);
    current()->shutdown();
  }

 private:
  static Session*& current() {
    thread_local Session* session = nullptr;
    return session;
  }
};

}  // namespace hvd::test
