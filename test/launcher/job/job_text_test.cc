#include <signal.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "launcher/job/job_summary.h"
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
}

TEST_CASE("The error summary asks about unequal numbers of steps unless the first failure had another reason",
          "[unit][job]") {
  CHECK(error_summary(failed_job(true), {}).find("first, after rank 0 had left the job (") != std::string::npos);
  const std::string asks = ", after rank 0 had left the job (unequal numbers of steps? see hvd.join())";
  CHECK(circumstance_of(failed_job(true), {"Horovod has been shut down: rank 0 called shutdown() or ended."}) == asks);
  CHECK(circumstance_of(failed_job(true), {"OSError: checkpoint.pt"}) == ", after rank 0 had left the job");
}

namespace {

// Rank 2 of three ends well, rank 0 fails, and then rank 1 ends well.
Failures job_with_good_ends(bool had_announced = false) {
  StaticJob job({{.host = {.name = "a", .user = "", .port = 0, .slots = 3},
                  .ranks = {{0, 3, 0, 3, 0, 1}, {1, 3, 1, 3, 0, 1}, {2, 3, 2, 3, 0, 1}}}},
                {}, TimePoint());
  job.agent_ready(0, TimePoint());
  for (int slot = 0; slot < 3; ++slot) job.process_started({slot, 1}, 100 + slot, TimePoint());
  if (had_announced) job.process_failing({2, 1}, false);
  job.process_ended({2, 1}, {}, TimePoint());
  job.process_ended({0, 1}, {.code = 1}, TimePoint());
  job.process_ended({1, 1}, {}, TimePoint());
  return job.failures();
}

}  // namespace

TEST_CASE("The error summary names a rank that ended with exit code 0 and that the first failure calls lost",
          "[unit][job]") {
  const std::string ended = " is lost: host a: its process ended or closed the connection";
  const auto said = [](const std::string& line) { return circumstance_of(job_with_good_ends(), {"Traceback", line}); };
  CHECK(said("HorovodInternalError: rank 2" + ended) ==
        ", because rank 2 on host a had ended with exit code 0 while others needed it (did it call os._exit()?)");
  CHECK(said("rank 2 is lost: host a: Connection reset by peer").starts_with(", because rank 2 on host a had ended"));
  // It may have done so because of the failure.
  CHECK(said("HorovodInternalError: rank 1" + ended) ==
        ", and rank 1 on host a, which it calls lost, has ended with exit code 0 (did it call os._exit()?)");
  CHECK(said("HorovodInternalError: rank 12" + ended).empty());
  CHECK(said("HorovodInternalError: rank 2 is lost: host a: no sign of life from its host for 6000 ms").empty());
  CHECK(said("ValueError: x").empty());
  CHECK(circumstance_of(job_with_good_ends(true), {"rank 2" + ended}).empty());
  CHECK(error_summary(job_with_good_ends(), {"rank 2" + ended}).find(" exited with code 1 first, because rank 2 on ") !=
        std::string::npos);
}

TEST_CASE("The summary for programs has who had left or ended before the first failure", "[unit][job]") {
  const auto summary = [](const Failures& failures, const std::vector<std::string>& lines) {
    return nlohmann::json::parse(summary_json({.command = {},
                                               .num_proc = 3,
                                               .started = {},
                                               .duration = {},
                                               .exit_code = 1,
                                               .restarts = 0,
                                               .failures = failures,
                                               .last_stderr_lines = lines,
                                               .processes = ProcessLedger()}));
  };
  const auto lost = summary(job_with_good_ends(), {"rank 2 is lost: host a: its process ended"});
  CHECK(lost["lost_before"] == nlohmann::json{{"rank", 2}, {"host", "a"}, {"before_failure", true}});
  CHECK(lost["left_before"].is_null());
  CHECK(summary(job_with_good_ends(), {"rank 1 is lost: host a: its process ended"})["lost_before"]["before_failure"] ==
        false);
  const auto left = summary(failed_job(true), {});
  CHECK(left["left_before"] == 0);
  CHECK(left["lost_before"].is_null());
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
      {error,
       {"horovod.HorovodInternalError: Stalled for more than 4 s: rank 1 did not submit \"a\"; shutting down (X)"},
       "rank 1 did not submit \"a\", for which others had waited for more than 4 s; while it does"},
      {error, {"Stalled for more than 5 s: the disk"}, ""},
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
