// Process sets with several backends: the executor and its lanes on N ranks, without negotiation.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <cstdio>
#include <thread>

#include "runtime/base/event.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "test/runtime/engine/set_members.h"

namespace hvd::engine {
namespace {

using collectives::CallTraits;

constexpr std::uint64_t kFuseAll = 1 << 20;

std::string only_large(const CallTraits& call) {
  const bool is_sum = call.op == OpType::kAllreduce && call.dtype == DataType::kFloat32;
  if (!is_sum) return "it sums float32 only";
  return call.bytes >= 4096 ? "" : std::to_string(call.bytes) + " bytes are few";
}

Operation alltoall(std::vector<float>& rows, std::vector<float>& received, int size) {
  Operation operation = test::allgather("alltoall", rows, received);
  operation.op = OpType::kAlltoall;
  operation.splits.assign(static_cast<std::size_t>(size), 1);
  return operation;
}

// A tensor of this rank's number.
std::vector<float> numbers(const Member& member, std::size_t n) {
  return std::vector<float>(n, static_cast<float>(member.rank() + 1));
}

TEST_CASE("A backend that takes some calls goes in before Gloo, which takes the others", "[multi][engine]") {
  const int depth = GENERATE(1, 2);
  StrictBackends strict({.ranks = 3, .traits = {.queue_depth = depth}, .why_not = only_large});
  const std::vector<std::string> expected{"strict allreduce", "gloo allreduce", "gloo allgather",  "strict allreduce",
                                          "gloo alltoall",    "gloo alltoall",  "strict allreduce"};
  const std::string found = run_members(strict, [&](Member& member, test::Problems& problems) {
    std::vector<float> large[3] = {numbers(member, 2000), numbers(member, 1024), numbers(member, 5000)};
    std::vector<float> small = numbers(member, 1023);
    std::vector<float> mine = numbers(member, 3);
    std::vector<float> all[2];
    for (const HandlePtr& handle : member.run({test::allreduce("a", large[0]), test::allreduce("small", small),
                                               test::allgather("gather", mine, all[0]), test::allreduce("b", large[1]),
                                               alltoall(mine, all[1], 3), test::allreduce("c", large[2])})) {
      problems.expect_ok(test::wait(handle), "rank " + std::to_string(member.rank()));
    }
    for (const auto& sums : {large[0], large[1], large[2], small}) {
      problems.expect(std::count(sums.begin(), sums.end(), 6.0F) == std::ssize(sums), "a wrong sum");
    }
    problems.expect(all[0] == std::vector<float>{1, 1, 1, 2, 2, 2, 3, 3, 3}, "a wrong allgather");
    problems.expect(all[1] == std::vector<float>{1, 2, 3}, "a wrong alltoall");
    problems.expect(member.log() == expected, "another choice or order");
  });
  CHECK(found == "");
}

TEST_CASE("A lane packs the next batch and unpacks the last one while a collective runs", "[multi][engine]") {
  // Call 0 ends when call 1 has been packed and started, call 1 when the results of call 0 are complete, and so on.
  Event unpacked[4];
  std::atomic<int> waits_over{0};
  std::unique_ptr<StrictBackends> strict;
  StrictBackends::Options options{.ranks = 2, .traits = {.queue_depth = 2}};
  options.before_end = [&](std::size_t call) {
    const Deadline patience = Deadline::after(test::kLimit);
    const auto next_started = [&] {
      return std::min(strict->started(0), strict->started(1)) > std::min<std::size_t>(call + 1, 3);
    };
    while (!next_started() && !patience.expired()) std::this_thread::yield();
    if (call > 0) unpacked[call - 1].wait_for(test::kLimit);
    waits_over += patience.expired() ? 0 : 1;
  };
  strict = std::make_unique<StrictBackends>(std::move(options));
  std::atomic<int> complete[4] = {};
  const std::string found = run_members(*strict, [&](Member& member, test::Problems& problems) {
    std::vector<std::vector<float>> tensors;
    for (int i = 0; i < 8; ++i) tensors.push_back(numbers(member, 100));
    std::vector<Operation> operations;
    for (int i = 0; i < 8; ++i) {
      operations.push_back(test::allreduce("t" + std::to_string(i), tensors[static_cast<std::size_t>(i)]));
      operations.back().on_done = [&, i](const Handle&) {
        if (i % 2 == 1 && ++complete[i / 2] == 2) unpacked[i / 2].set();
      };
    }
    for (const HandlePtr& handle : member.run(std::move(operations), 800))
      problems.expect_ok(test::wait(handle), "sum");
    for (const auto& sums : tensors) problems.expect(sums == std::vector<float>(100, 3), "a wrong sum");
    problems.expect(strict->started(member.rank()) == 4, "batches of two tensors");
    problems.expect(strict->stagings(member.rank()) == 2, "two staging buffers");
  });
  CHECK(found == "");
  CHECK(waits_over == 4);
  CHECK(strict->copies() == 2 * 8 * 2);  // in and out, eight tensors, two ranks
}

TEST_CASE("No batch starts between the two collectives of an alltoall", "[multi][engine]") {
  StrictBackends strict({.ranks = 2, .traits = {.queue_depth = 2}});
  const std::vector<std::string> expected{"strict allreduce", "strict alltoall", "strict alltoall", "strict allreduce"};
  const std::string found = run_members(strict, [&](Member& member, test::Problems& problems) {
    std::vector<float> sums[2] = {numbers(member, 2), numbers(member, 3)};
    std::vector<float> mine = numbers(member, 2);
    std::vector<float> received;
    for (const HandlePtr& handle :
         member.run({test::allreduce("a", sums[0]), alltoall(mine, received, 2), test::allreduce("b", sums[1])})) {
      problems.expect_ok(test::wait(handle), "a call");
    }
    problems.expect(received == std::vector<float>{1, 2}, "a wrong alltoall");
    problems.expect(sums[1] == std::vector<float>(3, 3), "a wrong sum");
    problems.expect(member.log() == expected, "another order");
  });
  CHECK(found == "");
}

TEST_CASE("The choice of a backend is logged once for each set and kind of operation", "[engine]") {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  REQUIRE(file != nullptr);
  const Fd stderr_before(::dup(2));
  ::dup2(::fileno(file.get()), 2);
  configure_log({LogLevel::kDebug});
  StrictBackends strict({.ranks = 1});
  const std::string found = run_members(strict, [&](Member& member, test::Problems& problems) {
    std::vector<float> data[3] = {numbers(member, 2), numbers(member, 3), {}};
    for (const HandlePtr& handle : member.run({test::allreduce("a", data[0]), test::allreduce("b", data[1]),
                                               test::allgather("gather", data[0], data[2])})) {
      problems.expect_ok(test::wait(handle), "a call of one rank");
    }
  });
  configure_log({});
  ::dup2(stderr_before.get(), 2);
  CHECK(found == "");
  std::string text(4096, '\0');
  std::rewind(file.get());
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  CHECK_THAT(text, Catch::Contains("backend chosen process_set=0 op=allreduce backend=local"));
  CHECK_THAT(text, Catch::Contains("backend chosen process_set=0 op=allgather backend=local"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
}

TEST_CASE("A backend that takes lists gets tensors where they lie, and zeros for a joined rank", "[multi][engine]") {
  StrictBackends strict({.ranks = 2, .traits = {.takes_segments = true}});
  const std::string found = run_members(strict, [&](Member& member, test::Problems& problems) {
    const bool has_joined = member.rank() == 1;
    std::vector<float> in[2] = {numbers(member, 5), numbers(member, 7)};
    std::vector<float> out[2] = {std::vector<float>(5), std::vector<float>(7)};
    std::vector<Operation> operations;
    for (int i = 0; i < 2; ++i) {
      operations.push_back(test::allreduce("r" + std::to_string(i), in[i], ReduceOp::kAverage));
      operations.back().output = out[i].data();
      operations.back().prescale = 4;
    }
    const auto reduced = member.run(std::move(operations), kFuseAll, has_joined);
    std::vector<float> all[2];
    for (const HandlePtr& handle :
         member.run({test::allgather("g0", in[0], all[0]), test::allgather("g1", in[1], all[1])}, kFuseAll)) {
      problems.expect_ok(test::wait(handle), "allgather");
    }
    problems.expect(all[0] == std::vector<float>{1, 1, 1, 1, 1, 2, 2, 2, 2, 2} && all[1].size() == 14, "gathered");
    const auto calls = strict.calls(member.rank());
    problems.expect(calls.size() == 2 && calls[0].segments.size() == 2 && calls[1].segments.size() == 2, "two lists");
    problems.expect(calls[1].segments[1].output == all[1].data(), "gathered elsewhere");
    problems.expect(strict.stagings(member.rank()) == (has_joined ? 1U : 0U), "staging memory");
    if (has_joined) return;
    for (const HandlePtr& handle : reduced) problems.expect_ok(test::wait(handle), "allreduce");
    // (4 * 1 + 4 * 0) / 2: the collective scales, also what a joined rank gives.
    problems.expect(out[0] == std::vector<float>(5, 2) && out[1] == std::vector<float>(7, 2), "a wrong average");
    problems.expect(calls[0].segments[0].input == in[0].data() && calls[0].segments[1].output == out[1].data(),
                    "reduced elsewhere");
  });
  CHECK(found == "");
}

TEST_CASE("What no backend takes is an error of that call on all ranks, and the next call runs", "[multi][engine]") {
  StrictBackends strict({.ranks = 2, .why_not = only_large});
  const std::string found = run_members(strict, [&](Member& member, test::Problems& problems) {
    std::vector<float> on_device = numbers(member, 1);
    std::vector<float> after = numbers(member, 2);
    const auto handles = member.run({test::allreduce(kOnDevice, on_device), test::allreduce("after", after)});
    problems.expect_code(test::wait(handles[0]), StatusCode::kInvalidArgument,
                         "no backend takes allreduce of float32 in device memory: strict: 4 bytes are few; gloo: it "
                         "reaches host memory only",
                         "the call");
    problems.expect_ok(test::wait(handles[1]), "the next call");
    problems.expect(after == std::vector<float>(2, 3), "a wrong sum");
  });
  CHECK(found == "");
}

TEST_CASE("A call that fails at its start stays with its backend, and nothing starts after it", "[multi][engine]") {
  StrictBackends::Options options{.ranks = 2, .traits = {.queue_depth = 2}, .why_not = only_large};
  options.on_start = [](int rank, std::size_t call) {
    return rank == 1 && call == 1 ? Status::internal("no memory for the communicator") : Status::ok();
  };
  StrictBackends strict(std::move(options));
  std::barrier failed(2);
  const std::string found = run_members(strict, [&](Member& member, test::Problems& problems) {
    std::vector<float> large[2] = {numbers(member, 2000), numbers(member, 2000)};
    std::vector<float> small = numbers(member, 2);
    const auto handles =
        member.run({test::allreduce("a", large[0]), test::allreduce("b", large[1]), test::allreduce("small", small)});
    problems.expect_ok(test::wait(handles[0]), "the call before");
    const bool is_first = member.rank() == 1;
    const std::string why = is_first ? "no memory for the communicator" : "rank 1 has failed";
    if (is_first) problems.expect_code(test::wait(handles[1]), StatusCode::kInternal, why, "the failing call");
    failed.arrive_and_wait();
    member.abort(Status::peer_lost("rank 1 has failed"));  // what the engine of each rank does then
    problems.expect_code(test::wait(handles[1]), is_first ? StatusCode::kInternal : StatusCode::kPeerLost, why, "b");
    problems.expect_code(test::wait(handles[2]), is_first ? StatusCode::kInternal : StatusCode::kPeerLost, why,
                         "the call after it");
    for (const std::string& line : member.log()) problems.expect(line != "gloo allreduce", "Gloo was started");
  });
  CHECK(found == "");
}

TEST_CASE("An abort reaches all backends of a set and ends a call that never would", "[multi][engine]") {
  StrictBackends strict({.ranks = 2, .traits = {.queue_depth = 2}, .why_not = only_large});
  const std::string found = run_members(strict, [&](Member& member, test::Problems& problems) {
    std::vector<float> large[2] = {numbers(member, 2000), numbers(member, 2000)};
    std::vector<float> small = numbers(member, 2);
    if (member.rank() == 1) return;
    const auto handles =
        member.run({test::allreduce("a", large[0]), test::allreduce("b", large[1]), test::allreduce("small", small)});
    const Deadline patience = Deadline::after(test::kLimit);
    while (strict.started(0) < 2 && !patience.expired()) std::this_thread::yield();
    problems.expect(!handles[0]->done(), "done without rank 1");
    member.abort(Status::peer_lost("rank 1 on host b is gone"));
    for (const HandlePtr& handle : handles) {
      problems.expect_code(test::wait(handle), StatusCode::kPeerLost, "rank 1 on host b is gone", "a call");
    }
    const std::vector<std::string> expected{"strict allreduce", "strict allreduce",
                                            "strict abort: rank 1 on host b is gone",
                                            "gloo abort: rank 1 on host b is gone"};
    problems.expect(member.log() == expected, "another log");
  });
  CHECK(found == "");
}

TEST_CASE("After a batch that cannot be packed, no other starts that peers might take for it", "[multi][engine]") {
  StrictBackends strict({.ranks = 2, .traits = {.queue_depth = 2}});
  const std::string found = run_members(strict, [&](Member& member, test::Problems& problems) {
    if (member.rank() == 1) return;
    std::vector<float> mine = numbers(member, 2);
    Operation hopeless = test::allgather("gather", mine, mine);
    hopeless.allocate_output = [](const Shape&) -> Result<void*> { return Status::internal("no memory"); };
    const auto handles = member.run({std::move(hopeless), test::allreduce("after", mine)});
    for (const HandlePtr& handle : handles) {
      problems.expect_code(test::wait(handle), StatusCode::kInternal, "no memory", "a call");
    }
    problems.expect(member.log().empty(), "something was started");
  });
  CHECK(found == "");
}

}  // namespace
}  // namespace hvd::engine
