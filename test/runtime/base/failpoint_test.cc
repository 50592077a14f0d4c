#include "runtime/base/failpoint.h"

#include <catch2/catch.hpp>

using namespace hvd;

#ifdef HVD_FAILPOINTS

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace {

// The table is the product's, so the test borrows places that nothing else in this program passes.
Status returns() {
  HVD_FAILPOINT_RETURN("join.begin");
  return Status::ok();
}
int calls() { return HVD_FAILPOINT_CALL("net.accept", 7); }
ssize_t takes(std::size_t size) { return HVD_FAILPOINT_IO("data.send", size, static_cast<ssize_t>(size)); }

struct Disarm {
  ~Disarm() { CHECK(failpoint::arm("").is_ok()); }
};

}  // namespace

TEST_CASE("A failpoint fails at the passage that was asked for, once or from then on", "[unit][failpoint]") {
  const Disarm after;
  CHECK(returns().is_ok());
  REQUIRE(failpoint::arm("join.begin=error@2;net.accept=EMFILE@2+;data.send=short+").code() ==
          StatusCode::kInvalidArgument);
  REQUIRE(failpoint::arm("join.begin=error@2;net.accept=EMFILE@2+;data.send=short@1+").is_ok());
  CHECK(returns().is_ok());
  CHECK(returns().to_string() == Status::internal("failpoint join.begin").to_string());
  CHECK(failpoint::arm("join.begin=error@2;net.accept=EMFILE@2+;data.send=short@1+").is_ok());  // goes on counting
  CHECK(returns().is_ok());
  CHECK(failpoint::passages("join.begin") == 3);
  CHECK(calls() == 7);
  for (int i = 0; i < 2; ++i) {
    errno = 0;
    CHECK(calls() == -1);
    CHECK(errno == EMFILE);
  }
  CHECK(takes(100) == 1);
  CHECK(takes(100) == 1);
  REQUIRE(failpoint::arm("join.begin=ECONNRESET").is_ok());
  CHECK(returns().code() == StatusCode::kPeerLost);
  CHECK(takes(100) == 100);
}

TEST_CASE("A failpoint ends its process as it is told", "[unit][failpoint]") {
  for (const auto& [action, signal] : {std::pair("exit", 0), std::pair("abort", SIGABRT), std::pair("kill", SIGKILL)}) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::signal(SIGABRT, SIG_DFL);  // Catch's handler would report a failed test from in here
      if (failpoint::arm(std::string("lane.start=") + action).is_ok()) HVD_FAILPOINT("lane.start");
      _exit(1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    INFO(action);
    CHECK((signal == 0 ? WIFEXITED(status) && WEXITSTATUS(status) == 70
                       : WIFSIGNALED(status) && WTERMSIG(status) == signal));
  }
}

TEST_CASE("What is wrong about HOROVOD_FAILPOINTS is said, and nothing is armed", "[unit][failpoint]") {
  const Disarm after;
  const auto refusal = [](const std::string& text) { return failpoint::arm(text).message(); };
  CHECK(refusal("lane.stat=kill") == "HOROVOD_FAILPOINTS: 'lane.stat=kill': no failpoint has this name");
  CHECK(refusal("lane.start") == "HOROVOD_FAILPOINTS: 'lane.start': expected name=action[@hit[+]]");
  for (const std::string action : {"error", "EMFILE", "short", "delay", "delay:x", "delay:0", "nothing"}) {
    CHECK(refusal("lane.start=" + action) ==
          "HOROVOD_FAILPOINTS: 'lane.start=" + action + "': '" + action + "' is no action of this failpoint");
  }
  CHECK(refusal("join.begin=error@0") == "HOROVOD_FAILPOINTS: 'join.begin=error@0': '0' is no number of a passage");
  CHECK(refusal("join.begin=error;x=kill") == "HOROVOD_FAILPOINTS: 'x=kill': no failpoint has this name");
  CHECK(returns().is_ok());
}

#else

TEST_CASE("A build without failpoints does not pretend to have them", "[unit][failpoint]") {
  CHECK(failpoint::arm("").is_ok());
  CHECK(failpoint::arm("join.begin=error").code() == StatusCode::kInvalidArgument);
}

#endif
