#include "launcher/agent/sweeper.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/base/fd.h"

using namespace hvd;
using namespace hvd::launcher;

TEST_CASE("descendants_of finds grandchildren, also in sessions of their own", "[agent]") {
  Pipe pipe = make_pipe().value();
  const pid_t child = ::fork();
  if (child == 0) {
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      ::setsid();
      ::pause();
    }
    [[maybe_unused]] const ssize_t n = ::write(pipe.write_end.get(), &grandchild, sizeof(grandchild));
    ::pause();
  }
  pid_t grandchild = 0;
  REQUIRE(read_exactly(pipe.read_end.get(), &grandchild, sizeof(grandchild)).is_ok());
  const auto found = descendants_of(::getpid());
  CHECK(std::count(found.begin(), found.end(), child) == 1);
  CHECK(std::count(found.begin(), found.end(), grandchild) == 1);
  CHECK(descendants_of(child) == std::vector<int>{grandchild});
  for (pid_t pid : {grandchild, child}) ::kill(pid, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("reap_adopted leaves the children that others wait for", "[agent]") {
  const pid_t known = ::fork();
  if (known == 0) ::_exit(7);
  siginfo_t info = {};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(known), &info, WEXITED | WNOWAIT) == 0);
  reap_adopted({known});
  int status = 0;
  CHECK(::waitpid(known, &status, WNOHANG) == known);
  CHECK(WEXITSTATUS(status) == 7);
}
