#include "launcher/process/child.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "launcher/process/byte_pipe.h"
#include "launcher/process/main_loop.h"
#include "runtime/loop/timer.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

struct Outcome {
  ExitStatus status;
  std::string out;
};

// Runs `sh -c script` to its end, or fails the test after ten seconds.
Outcome run_shell(const std::string& script, int signal_once_ready = 0) {
  MainLoop loop;
  Outcome outcome;
  bool exited = false;
  bool ended = false;
  Pipe pipe = make_pipe().value();
  ChildOptions options;
  options.file = "sh";
  options.argv = {"sh", "-c", script};
  options.stdout_fd = pipe.write_end.get();
  const auto maybe_stop = [&] {
    if (exited && ended) loop.stop();
  };
  auto child = Child::spawn(loop, options, [&](ExitStatus status) {
    outcome.status = status;
    exited = true;
    maybe_stop();
  });
  REQUIRE(child.is_ok());
  pipe.write_end.reset();
  auto reader = PipeReader::open(loop, std::move(pipe.read_end),
                                 {.on_data =
                                      [&](ByteSpan bytes) {
                                        outcome.out += as_text(bytes);
                                        if (signal_once_ready != 0) child.value()->kill_group(signal_once_ready);
                                      },
                                  .on_end =
                                      [&] {
                                        ended = true;
                                        maybe_stop();
                                      }});
  REQUIRE(reader.is_ok());
  loop::Timer deadline(loop.get(), [&] { loop.stop(); });
  deadline.start(Millis(10000));
  loop.run();
  REQUIRE(exited);
  return outcome;
}

}  // namespace

TEST_CASE("Child reports exit codes", "[process]") {
  CHECK(run_shell("exit 0").status == ExitStatus{0, 0});
  CHECK(run_shell("exit 42").status == ExitStatus{42, 0});
}

TEST_CASE("Child reports the signal that ended it", "[process]") {
  const ExitStatus status = run_shell("kill -KILL $$").status;
  CHECK(status == ExitStatus{0, SIGKILL});
  CHECK(status.shell_code() == 137);
  CHECK(describe(status) == "was killed by signal 9 (SIGKILL)");
}

TEST_CASE("Child leads a session and a process group of its own", "[process]") {
  const Outcome outcome = run_shell("echo $$ $(ps -o pgid=,sid= -p $$)");
  std::istringstream in(outcome.out);
  int pid = 0, pgid = 0, sid = 0;
  in >> pid >> pgid >> sid;
  CHECK(pid > 0);
  CHECK(pgid == pid);
  CHECK(sid == pid);
}

TEST_CASE("Child::kill_group reaches what the child has started", "[process]") {
  // The pipe ends only when the inner sleep is gone as well.
  CHECK(run_shell("sleep 1000 & echo ready; wait", SIGTERM).status.signal == SIGTERM);
}

TEST_CASE("Child has an empty stdin unless it is given one", "[process]") {
  CHECK(run_shell("cat; readlink /proc/self/fd/0").out == "/dev/null\n");
}

TEST_CASE("Child::spawn names the program that is not there", "[process]") {
  MainLoop loop;
  const auto child = Child::spawn(loop, {.file = "no-such-program", .argv = {"x"}, .env = {}, .cwd = {}}, {});
  REQUIRE_FALSE(child.is_ok());
  CHECK(child.status().message().find("no-such-program: No such file or directory") != std::string::npos);
}

TEST_CASE("Where no more processes may be, the message says what limits them", "[process]") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
    ::setrlimit(RLIMIT_NPROC, &none);
    if (::geteuid() == 0) [[maybe_unused]]
      const int rc = ::setuid(65534);  // root has no such limit
    MainLoop loop;
    ChildOptions options;
    options.file = "true";
    options.argv = {"true"};
    const Status status = Child::spawn(loop, options, nullptr).status();
    const bool is_said = status.message().starts_with(
        "cannot start true: Resource temporarily unavailable (no more processes or threads: `ulimit -u` lets this "
        "user have 0,");
    ::_exit(is_said ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
