// Operations as a profiler sees them: a fake one, which NVTX loads at the first session of this program.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <sstream>

#include "test/runtime/engine/job_support.h"
#include "test/support/fake_nvtx/fake_nvtx.h"

using namespace hvd;
using namespace hvd::test;

namespace {

using Values = std::vector<float>;
using Times = std::map<std::string, int>;

// Before the first session, and for all of this process.
void start_profiler() {
  static const bool is_set = setenv("NVTX_INJECTION64_PATH", HVD_FAKE_NVTX, 1) == 0;
  REQUIRE(is_set);
  fake_nvtx_take_ended();
}

// How often each line is in a text.
Times lines(const char* text) {
  Times times;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) ++times[line];
  return times;
}

bool has_line(const char* text, const std::string& line) { return lines(text).contains(line); }

void check_all_ended() {
  CHECK(fake_nvtx_open() == std::string());
  CHECK(fake_nvtx_domains() == std::string());
  CHECK(fake_nvtx_breaches() == std::string());
}

constexpr char kDomains[] =
    "HorovodAdasum\nHorovodAllgather\nHorovodAllreduce\nHorovodAlltoall\nHorovodBarrier\nHorovodBroadcast\nHorovodJoin"
    "\n"
    "HorovodReducescatter\n";

// One of each kind but a join, of ranks that are two. Names say what is special.
std::vector<HandlePtr> each_kind(Session& session, Values& a, Values& b, std::array<Values, 3>& results) {
  Operation broadcast = allreduce("from 1", a);
  broadcast.op = OpType::kBroadcast;
  broadcast.root_rank = 1;
  Operation alltoall = allgather("splits", b, results[1]);
  alltoall.op = OpType::kAlltoall;
  Operation scatter = allgather("scattered", b, results[2]);
  scatter.op = OpType::kReducescatter;
  std::vector<HandlePtr> handles;
  for (Operation& operation : std::array{allgather("gathered", a, results[0]), broadcast, alltoall, scatter,
                                         without_tensor(OpType::kBarrier)}) {
    handles.push_back(session.enqueue(std::move(operation)).value());
    (void)wait(handles.back());
  }
  return handles;
}

}  // namespace

TEST_CASE("A profiler sees each operation, with its name and bytes, however ranks exchange it", "[multi][engine]") {
  start_profiler();
  const bool has_shm = GENERATE(false, true);
  run_job(
      2,
      [&](Session& session, Problems& problems) {
        problems.expect(fake_nvtx_domains() == std::string(kDomains), "domains");
        Values small(3, 1.0F);
        Values large(100'000, 1.0F);
        for (int i = 0; i < 20; ++i) {  // in shared memory all but the first by their callers
          problems.expect_ok(wait(session.enqueue(allreduce("small", small))), "small");
        }
        problems.expect_ok(wait(session.enqueue(allreduce("large", large))), "large");
        Operation adasum = allreduce("adasum", small, ReduceOp::kAdasum);
        problems.expect_ok(wait(session.enqueue(std::move(adasum))), "adasum");
        Values a(4, 1.0F);
        Values b(6, 1.0F);
        for (int i = 0; i < 5; ++i) {
          const auto group = session.enqueue_group({allreduce("a", a), allreduce("b", b)}).value();
          for (const HandlePtr& handle : group) problems.expect_ok(wait(handle), "a group");
        }
        std::array<Values, 3> results;
        for (const HandlePtr& handle : each_kind(session, a, b, results)) {
          problems.expect_ok(handle->status(), "one of each kind");
        }
        problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kJoin))), "join");
      },
      [&](config::RuntimeConfig& config) { config.shared_memory = has_shm; });
  CHECK(lines(fake_nvtx_take_ended()) == Times{{"HorovodAllreduce small 12", 40},
                                               {"HorovodAllreduce large 400000", 2},
                                               {"HorovodAdasum adasum 12", 2},
                                               {"HorovodAllreduce a 16", 10},
                                               {"HorovodAllreduce b 24", 10},
                                               {"HorovodAllgather gathered 16", 2},
                                               {"HorovodBroadcast from 1 16", 2},
                                               {"HorovodAlltoall splits 24", 2},
                                               {"HorovodReducescatter scattered 24", 2},
                                               {"HorovodBarrier barrier.noname 0", 2},
                                               {"HorovodJoin join.noname 0", 2}});
  check_all_ended();
}

TEST_CASE("A range ends before its handle is done, also when the operation fails", "[multi][engine]") {
  start_profiler();
  run_job(2, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    Values data(static_cast<std::size_t>(rank) + 1, 1.0F);  // not of one shape
    const std::string range = "HorovodAllreduce unlike " + std::to_string(4 * (rank + 1));
    problems.expect_code(wait(session.enqueue(allreduce("unlike", data))), StatusCode::kPrecondition, "shape", range);
    problems.expect(!has_line(fake_nvtx_open(), range), range + ": is open");
  });
  CHECK(lines(fake_nvtx_take_ended()) == Times{{"HorovodAllreduce unlike 4", 1}, {"HorovodAllreduce unlike 8", 1}});
  check_all_ended();
}

TEST_CASE("An operation that its session ends is a range until then, and one that is refused is none",
          "[multi][engine]") {
  start_profiler();
  std::barrier all(2);
  run_job(2, [&](Session& session, Problems& problems) {
    Values data(2, 1.0F);
    if (session.topology().rank == 0) {
      const Result<HandlePtr> lonely = session.enqueue(allreduce("lonely", data));
      problems.expect(has_line(fake_nvtx_open(), "HorovodAllreduce lonely 8"), "it is not open");
      problems.expect_code(wait(session.enqueue(allreduce("lonely", data))), StatusCode::kInvalidArgument, "pending",
                           "the name is taken");
      problems.expect(
          session.enqueue(without_tensor(OpType::kJoin, 77)).status().code() == StatusCode::kInvalidArgument,
          "there is no such set");
      all.arrive_and_wait();
      session.shutdown();
      problems.expect(!wait(lonely).is_ok(), "it went well");
      problems.expect(session.enqueue(allreduce("late", data)).status().code() != StatusCode::kOk, "after the end");
    } else {
      all.arrive_and_wait();
    }
  });
  CHECK(lines(fake_nvtx_take_ended()) == Times{{"HorovodAllreduce lonely 8", 1}});
  check_all_ended();
}

TEST_CASE("With HOROVOD_DISABLE_NVTX_RANGES a profiler sees nothing of that rank", "[multi][engine]") {
  start_profiler();
  run_job(
      2,
      [&](Session& session, Problems& problems) {
        Values data(static_cast<std::size_t>(8), 1.0F);
        for (int i = 0; i < 3; ++i) problems.expect_ok(wait(session.enqueue(allreduce("x", data))), "x");
      },
      [&](config::RuntimeConfig& config) { config.disable_nvtx_ranges = config.rank == 1; });
  CHECK(lines(fake_nvtx_take_ended()) == Times{{"HorovodAllreduce x 32", 3}});
  check_all_ended();
}
