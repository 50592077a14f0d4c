#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <iostream>

// Not in hvd::test, beside which there is a hvd::rendezvous::test.
namespace hvd {

// While it lives, its thread acts as another user, as whom the kernel then knows sockets that listen or connect. Root
// alone may: the test asks `is_there()`, and is counted as skipped.
class OtherUser {
 public:
  OtherUser() : own_(::geteuid()), is_there_(own_ == 0 && become(kNobody)) {
    if (!is_there_) std::cout << "SKIPPED: only root can act as another user" << std::endl;
  }
  ~OtherUser() {
    if (is_there_) become(own_);
  }
  OtherUser(const OtherUser&) = delete;
  OtherUser& operator=(const OtherUser&) = delete;
  bool is_there() const { return is_there_; }

 private:
  static constexpr uid_t kNobody = 65534;
  // Not seteuid(), which is for all threads of the process.
  static bool become(uid_t user) { return ::syscall(SYS_setresuid, -1, user, -1) == 0; }

  uid_t own_;
  bool is_there_;
};

}  // namespace hvd
