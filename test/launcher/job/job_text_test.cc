#include <signal.h>

#include <catch2/catch.hpp>

#include "launcher/job/static_job.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

Failures failed_job(bool other_had_left = false) {
  StaticJob job(
      {{.host = {.name = "a", .user = "", .port = 0, .slots = 2}, .ranks = {{0, 2, 0, 2, 0, 1}, {1, 2, 1, 2, 0, 1}}}},
      {}, TimePoint());
  job.agent_ready(0, TimePoint());
  job.process_started({0, 1}, 100, TimePoint());
  job.process_started({1, 1}, 101, TimePoint());
  if (other_had_left) job.process_failing({0, 1}, true);
  if (other_had_left) job.process_ended({0, 1}, {.code = 0, .signal = 0}, TimePoint());
  job.process_ended({1, 1}, {.code = 0, .signal = 11}, TimePoint());
  job.process_ended({0, 1}, {.code = 1, .signal = 0}, TimePoint());
  return job.failures();
}

}  // namespace

TEST_CASE("The error summary names the first failure, its last lines, and who followed", "[unit][job]") {
  CHECK(
      error_summary(failed_job(), {"Traceback", "ValueError: x"}) ==
      "the job failed: rank 1 on host a (pid 101) was killed by signal 11 (SIGSEGV) first; its last lines on stderr:\n"
      "    Traceback\n    ValueError: x\n"
      "Probable cause: native code used an address where nothing is: a fault of the program or of a library that it "
      "loads; Python's stacks stand in its last lines, where it could print them\n"
      "After that, rank 0 exited with code 1\n"
      "Process name: 1\nExit code: 139");
  CHECK(error_summary(failed_job(), {}).find("it wrote nothing to stderr") != std::string::npos);
  CHECK(error_summary(failed_job(true), {}).find("first, after rank 0 had left the job (") != std::string::npos);
}

TEST_CASE("The error summary names a rank that ended with exit code 0 and that the first failure calls lost",
          "[unit][job]") {
  StaticJob job({{.host = {.name = "a", .user = "", .port = 0, .slots = 3},
                  .ranks = {{0, 3, 0, 3, 0, 1}, {1, 3, 1, 3, 0, 1}, {2, 3, 2, 3, 0, 1}}}},
                {}, TimePoint());
  job.agent_ready(0, TimePoint());
  for (int slot = 0; slot < 3; ++slot) job.process_started({slot, 1}, 100 + slot, TimePoint());
  job.process_ended({2, 1}, {}, TimePoint());
  job.process_ended({0, 1}, {.code = 1}, TimePoint());
  job.process_ended({1, 1}, {}, TimePoint());
  const auto summary = [&](const std::string& line) { return error_summary(job.failures(), {"Traceback", line}); };
  const std::string because = " first, because rank 2 had ended with exit code 0 while others needed it";
  CHECK(summary("HorovodInternalError: rank 2 is lost: host a: its process ended").find(because) != std::string::npos);
  CHECK(summary("HorovodInternalError: rank 1 is lost: x").find("because rank 1 had") != std::string::npos);
  CHECK(summary("HorovodInternalError: rank 12 is lost: x").find("because") == std::string::npos);
  CHECK(summary("ValueError: x").find("because") == std::string::npos);
}

TEST_CASE("The error summary does not repeat lines that still stand on the screen", "[unit][job]") {
  const std::string text = error_summary(failed_job(), {"Traceback", "ValueError: x"}, true);
  CHECK(text.find("; its last lines on stderr stand above, behind [1]<stderr>:\nProbable cause: ") !=
        std::string::npos);
  CHECK(text.find("Traceback") == std::string::npos);
}

TEST_CASE("A rank's end and its last words are told in a sentence", "[unit][job]") {
  struct Case {
    ExitStatus status;
    std::vector<std::string> lines;
    std::string sentence;  // a part of it
  };
  const ExitStatus error{.code = 1};
  const ExitStatus killed{.signal = SIGKILL};
  const std::vector<Case> cases = {
      {error, {}, ""},
      {error, {"ValueError: x"}, ""},
      {killed, {}, "or the kernel, which does so when memory runs out"},
      {{.signal = SIGKILL, .memory_kills = 1, .of_group = true},
       {"torch.OutOfMemoryError: CUDA out of memory."},
       "memory ran out on host a: since the job began, the kernel has killed 1 process of its ranks' control group"},
      {{.signal = SIGKILL, .memory_kills = 2},
       {},
       "perhaps memory ran out: since the job began, the kernel has killed 2 "
       "processes of host a for want of it"},
      // A helper of it was killed; its own words are better.
      {{.code = 1, .memory_kills = 1, .of_group = true}, {"DataLoader worker is killed"}, "memory ran out on host a"},
      {{.code = 1, .memory_kills = 1, .of_group = true}, {"OSError: [Errno 28] No space left on device"}, "is full"},
      {{.signal = SIGTERM}, {}, ""},
      {{.signal = SIGBUS}, {}, "/dev/shm or a disk is full"},
      {{.signal = SIGFPE}, {}, "divided an integer by zero"},
      {{.signal = SIGILL}, {}, "built for a newer one"},
      {{.signal = SIGABRT}, {"terminate called after throwing an instance of 'std::bad_alloc'"}, "got no more memory"},
      {error,
       {"ModuleNotFoundError: No module named 'torch.x'", "rank 0: bye"},
       "finds no module 'torch.x': it is not"},
      {error,
       {"ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"},
       "needs the library libcudart.so.12, which the loader does not find on host a"},
      {error, {"ImportError: cannot import name 'x' from 'y' (/y.py)"}, "is of another version on host a"},
      {error,
       {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."},
       "a GPU of host a has run out of "
       "memory: a smaller batch"},
      {error, {"MemoryError"}, "the program got no more memory on host a"},
  };
  for (const Case& one : cases) {
    JobFailure failure;
    failure.host = "a";
    failure.status = one.status;
    const std::string cause = cause_of(failure, one.lines);
    INFO(one.sentence << " / " << cause);
    CHECK((one.sentence.empty() ? cause.empty() : cause.find(one.sentence) != std::string::npos));
  }
}

TEST_CASE("The error summary is empty when no rank failed", "[unit][job]") {
  CHECK(error_summary(StaticJob({}, {}, TimePoint()).failures(), {}).empty());
}
