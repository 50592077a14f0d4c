#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <catch2/catch.hpp>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/base/failpoint.h"
#include "test/runtime/engine/job_support.h"
#include "test/support/captured_log.h"
#include "test/support/threads.h"

using namespace hvd;
using namespace hvd::test;

// Ranks on hosts of any sizes: what follows from who shares a host is the same on every rank.
namespace {

const std::vector<int> kSizes = {4, 3, 1};

// The numbers of a rank on hosts of these sizes, ranks in a row, as a launcher would give them; and its host.
std::pair<JobTopology, std::size_t> expected(int rank) {
  JobTopology topology;
  std::size_t host = 0;
  for (topology.local_rank = rank; topology.local_rank >= kSizes[host]; ++host) topology.local_rank -= kSizes[host];
  topology.local_size = kSizes[host];
  topology.cross_size = 0;
  for (std::size_t other = 0; other < kSizes.size(); ++other) {
    if (kSizes[other] <= topology.local_rank) continue;
    ++topology.cross_size;
    if (other < host) ++topology.cross_rank;
  }
  return {topology, host};
}

// Ranks of a plan that gives slots other ranks than a starter would, and is told nothing by their environments.
struct ReversedPlan final : rendezvous::Plan {
  int max_slots() const override { return 3; }
  Status admit(const rendezvous::Seat&, const rendezvous::RankNumbers&) const override { return Status::ok(); }
  Result<rendezvous::Round> decide(const rendezvous::Waiting& waiting) override {
    rendezvous::Round round;
    if (waiting.size() < 3) return round;
    for (int slot = 0; slot < 3; ++slot) round.emplace(slot, rendezvous::RankNumbers{.rank = 2 - slot, .size = 3});
    return round;
  }
  std::string describe_missing(const rendezvous::Waiting&, const std::set<int>&) const override { return "some"; }
};

// Which host a rank of eight is on: in a row, dealt out to three, dealt out to two.
std::size_t host_of(int placement, int rank) {
  if (placement == 0) return expected(rank).second;
  return static_cast<std::size_t>(rank) % (placement == 1 ? 3 : 2);
}

float element(int rank, std::size_t i) { return static_cast<float>(rank + 1) + static_cast<float>(i % 7); }

std::vector<float> elements(int rank, std::size_t count) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = element(rank, i);
  return data;
}

// Of these members; the one numbered i gives (i + 1) * count elements.
void check_allgather(Session& session, Problems& problems, const std::vector<int>& members, std::int32_t set,
                     std::size_t count) {
  std::vector<float> right;
  std::vector<float> mine;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::vector<float> part = elements(members[i], (i + 1) * count);
    right.insert(right.end(), part.begin(), part.end());
    if (members[i] == session.topology().rank) mine = part;
  }
  std::vector<float> all;
  problems.expect_ok(wait(session.enqueue(allgather("gather", mine, all, set))), "allgather");
  problems.expect(all == right, "wrong allgather of " + std::to_string(count));
}

// Of all ranks: twice the sum, each rank's part of it; the first have one more where it cannot be shared out evenly.
void check_reducescatter(Session& session, Problems& problems, std::size_t count) {
  const auto rank = static_cast<std::size_t>(session.topology().rank);
  const auto size = static_cast<std::size_t>(session.topology().size);
  std::vector<float> data = elements(session.topology().rank, count);
  std::vector<float> part;
  Operation operation = allgather("scatter", data, part);
  operation.op = OpType::kReducescatter;
  operation.prescale = 0.5;
  operation.postscale = 4.0;
  problems.expect_ok(wait(session.enqueue(std::move(operation))), "reducescatter");
  const std::size_t begin = rank * (count / size) + std::min(rank, count % size);
  bool is_right = part.size() == count / size + (rank < count % size ? 1 : 0);
  for (std::size_t i = 0; is_right && i < part.size(); ++i) {
    is_right = part[i] == 2 * (36.0F + 8.0F * static_cast<float>((begin + i) % 7));
  }
  problems.expect(is_right, "wrong reducescatter of " + std::to_string(count));
}

// Of eight ranks, each of which gets one element; 4.5 is truncated.
void check_average_of_integers(Session& session, Problems& problems) {
  std::vector<float> data(8, std::bit_cast<float>(std::int32_t{session.topology().rank + 1}));
  std::vector<float> part;
  Operation operation = allgather("average", data, part);
  operation.op = OpType::kReducescatter;
  operation.reduce_op = ReduceOp::kAverage;
  operation.input.dtype = DataType::kInt32;
  problems.expect_ok(wait(session.enqueue(std::move(operation))), "average");
  problems.expect(part.size() == 1 && std::bit_cast<std::int32_t>(part[0]) == 4, "wrong average of integers");
}

void check_broadcast(Session& session, Problems& problems, int root, std::size_t count) {
  std::vector<float> data = elements(session.topology().rank, count);
  Operation operation = allreduce("broadcast", data);
  operation.op = OpType::kBroadcast;
  operation.root_rank = root;
  problems.expect_ok(wait(session.enqueue(std::move(operation))), "broadcast");
  problems.expect(data == elements(root, count), "wrong broadcast of rank " + std::to_string(root));
}

}  // namespace

TEST_CASE("Ranks on hosts of 4, 3 and 1 ranks agree that they are not equal", "[multi][engine]") {
  run_job(
      8,
      [&](Session& session, Problems& problems) {
        const std::string who = "rank " + std::to_string(session.topology().rank);
        // Nobody has told them.
        const JobTopology own = session.topology();
        const JobTopology right = expected(own.rank).first;
        problems.expect(own.local_rank == right.local_rank && own.local_size == right.local_size &&
                            own.cross_rank == right.cross_rank && own.cross_size == right.cross_size,
                        who + " has wrong local or cross numbers");
        problems.expect(!session.topology().is_homogeneous, who + " thinks that hosts are equal");
        // Gradients that are orthogonal between ranks add up; averages of hosts would be smaller.
        std::vector<float> data(8, 0.0F);
        data[static_cast<std::size_t>(session.topology().rank)] = 4.0F;
        problems.expect_ok(wait(session.enqueue(allreduce("a", data, ReduceOp::kAdasum))), "adasum");
        problems.expect(data == std::vector<float>(8, 4.0F), "wrong adasum " + std::to_string(data[0]));
      },
      [](config::RuntimeConfig& config) {
        config.hostname = "host" + std::to_string(expected(config.rank).second);
        config.hierarchical_allreduce = true;
      });
}

TEST_CASE("Ranks of a host are reduced first, wherever they are numbered, and only where that is wanted",
          "[multi][engine]") {
  struct Variant {
    std::optional<bool> option;
    bool deterministic;
    std::size_t count;
    bool is_hierarchical;
    bool torus = false;
  };
  const Variant variants[] = {
      {std::nullopt, false, 70001, true},      {std::nullopt, false, 1000, false}, {true, false, 1000, true},
      {std::nullopt, true, 70001, false},      {false, false, 70001, false},       {false, false, 1000, true, true},
      {std::nullopt, true, 70001, false, true}};
  for (const Variant& variant : variants) {
    run_job(
        4,
        [&](Session& session, Problems& problems) {
          // Inside each host the sum is exact; between ranks of two hosts the ones get lost.
          constexpr float kOwn[] = {1e8F, 1.0F, -1e8F, 1.0F};
          std::vector<float> data(variant.count, kOwn[session.topology().rank]);
          problems.expect_ok(wait(session.enqueue(allreduce("a", data))), "allreduce");
          const bool inside_first = std::count(data.begin(), data.end(), 2.0F) == std::ssize(data);
          problems.expect(inside_first == variant.is_hierarchical, "another order of " + std::to_string(variant.count));
        },
        [&](config::RuntimeConfig& config) {
          config.hostname = config.rank % 2 == 0 ? "a" : "b";
          config.hierarchical_allreduce = variant.option;
          config.torus_allreduce = variant.torus;
          config.deterministic = variant.deterministic;
        });
  }
}

// Of all ranks, of some, in another type, in other memory, fused, of nothing; with shared memory on no host, on some,
// on all.
TEST_CASE("Allreduces of unequal hosts are right, with shared memory or without", "[multi][engine]") {
  const int without = GENERATE(0, 4, 8);
  const std::vector<int> some = {1, 2, 3, 5, 7};  // 3, 1 and 1 on the hosts
  run_job(
      8,
      [&](Session& session, Problems& problems) {
        const int rank = session.topology().rank;
        const auto check = [&](const Result<HandlePtr>& handle, const std::vector<float>& data, float expected,
                               const std::string& what) {
          problems.expect_ok(wait(handle), what);
          problems.expect(std::count(data.begin(), data.end(), expected) == std::ssize(data), "wrong " + what);
        };
        for (const std::size_t count : {1U, 5U, 20U, 1000U, 70001U, 1000001U}) {  // the last one in pieces
          std::vector<float> data(count, static_cast<float>(rank + 1));
          check(session.enqueue(allreduce("sum", data)), data, 36, "sum of " + std::to_string(count));
          data.assign(count, static_cast<float>(rank + 1));
          check(session.enqueue(allreduce("max", data, ReduceOp::kMax)), data, 8, "max");
          std::vector<float> beside(count);
          Operation average = allreduce("average", data, ReduceOp::kAverage);
          average.prescale = 2.0;
          average.postscale = 3.0;
          average.output = beside.data();
          data.assign(count, static_cast<float>(rank + 1));
          check(session.enqueue(std::move(average)), beside, 27, "average");
          problems.expect(data.front() == static_cast<float>(rank + 1), "the input was written");
          if (std::find(some.begin(), some.end(), rank) == some.end()) continue;
          data.assign(count, static_cast<float>(rank));
          check(session.enqueue(allreduce("some", data, ReduceOp::kSum, 1)), data, 18, "sum of some ranks");
        }
        std::vector<std::vector<float>> many(20, std::vector<float>(5003, static_cast<float>(rank)));
        std::vector<Operation> group;
        for (std::size_t i = 0; i < many.size(); ++i) group.push_back(allreduce("g" + std::to_string(i), many[i]));
        const auto handles = session.enqueue_group(std::move(group));
        problems.expect_ok(handles.status(), "group");
        for (std::size_t i = 0; i < many.size(); ++i) check(handles.value()[i], many[i], 28, "group");
        if (rank == 0) {  // with zeros, and Average divides by all
          std::vector<float> data(30000, 8.0F);
          check(session.enqueue(allreduce("joined", data, ReduceOp::kAverage)), data, 1, "average while others joined");
        }
        problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kJoin))), "join");
      },
      [&](config::RuntimeConfig& config) {
        config.hostname = "host" + std::to_string(expected(config.rank).second);
        config.hierarchical_allreduce = true;
        config.shared_memory = config.rank >= without;
      },
      [&](int) { return JobFixture::RankLists{some}; });
}

namespace {

int open_sockets() {
  int found = 0;
  std::error_code gone;  // while others close theirs
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    found += std::filesystem::read_symlink(entry, gone).string().starts_with("socket:") ? 1 : 0;
  }
  return found;
}

}  // namespace

// Which number is best on which network is found in test/e2e/hosts; here 4 connections are tried, and perhaps 8 and 2.
TEST_CASE("Results are right while ranks try how many connections are fastest", "[multi][engine]") {
  const bool flat = GENERATE(true, false);
  const int by_hand = GENERATE(0, 1);
#ifdef HVD_SANITIZED
  if (flat || by_hand != 0) return;  // a call takes a second there
  constexpr bool kIsWhole = false;
#else
  constexpr bool kIsWhole = true;
#endif
  constexpr int kJoins = 12;  // after so many calls rank 3 gives zeros
  const int calls = by_hand != 0 ? 3 : (kIsWhole ? 3 * 18 : 18);
  int before = 0;
  int after = 0;
  int* const sockets[] = {&before, &after};
  std::size_t looks = 0;
  std::barrier look(4, [&]() noexcept { *sockets[looks++] = open_sockets(); });
  const CapturedLog log;
  run_job(
      4,
      [&](Session& session, Problems& problems) {
        const int rank = session.topology().rank;
        const auto sum = [&](int call, std::size_t count, float right) {
          std::vector<float> data(count, static_cast<float>(rank + call));
          problems.expect_ok(wait(session.enqueue(allreduce("sum", data))), "allreduce");
          problems.expect(std::count(data.begin(), data.end(), right) == std::ssize(data), "wrong sum");
        };
        sum(0, 1U << 18U, 6);  // too small to be tried, and large enough for all connections
        look.arrive_and_wait();
        for (int call = 0; call < calls && (rank != 3 || call < kJoins); ++call) {
          sum(call, 1U << 20U, static_cast<float>(call < kJoins ? 6 + 4 * call : 3 + 3 * call));
          if (call == 2) look.arrive_and_wait();
          if (call == kJoins - 1)
            problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kBarrier))), "barrier");
        }
        problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kJoin))), "join");
      },
      [&](config::RuntimeConfig& config) {
        config.hostname = config.rank % 2 == 0 ? "a" : "b";
        config.hierarchical_allreduce = !flat;
        config.sockets_per_peer = by_hand;
        config.log_level = LogLevel::kInfo;
      });
  // Each rank has come to the end, or under a sanitizer at least to that of the first comparison.
  CHECK(log.count(kIsWhole ? "more_trials=0" : "more_trials=") == (by_hand == 0 ? 4 : 0));
  // Three more for each of two pairs at least, with an end in each rank.
  CHECK((after >= before + 2 * 2 * 3) == (by_hand == 0));
}

TEST_CASE("Gathers, scatters and broadcasts host by host are right, however ranks are dealt out", "[multi][engine]") {
  const int placement = GENERATE(0, 1, 2);
  const bool shared = GENERATE(true, false);
  const std::vector<int> some = {1, 2, 3, 5, 7};
  run_job(
      8,
      [&](Session& session, Problems& problems) {
        const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
        for (const std::size_t count : {0U, 1U, 1000U}) {
          check_allgather(session, problems, all, kGlobalProcessSet, count);
          if (std::ranges::find(some, session.topology().rank) == some.end()) continue;
          check_allgather(session, problems, some, 1, count);
        }
        for (const std::size_t count : {3U, 8U, 20003U}) check_reducescatter(session, problems, count);
        check_average_of_integers(session, problems);
        for (const int root : {0, 3, 7}) check_broadcast(session, problems, root, 30001);
      },
      [&](config::RuntimeConfig& config) {
        config.hostname = "host" + std::to_string(host_of(placement, config.rank));
        config.hierarchical_allreduce = config.hierarchical_allgather = true;
        config.shared_memory = shared;
      },
      [&](int) { return JobFixture::RankLists{some}; });
}

TEST_CASE("Large gathers, scatters and broadcasts go over the network in pieces, beside the steps inside hosts",
          "[multi][engine]") {
  const int placement = GENERATE(0, 2);
  const bool shared = GENERATE(true, false);
  const OpType op = GENERATE(OpType::kAllgather, OpType::kReducescatter, OpType::kBroadcast);
#ifdef HVD_SANITIZED
  if (placement == 0 || !shared) return;  // they take long there
#endif
  std::atomic<int> beside = 0;
  std::barrier done(8, [&]() noexcept { beside = threads_named("hvd-across"); });
  run_job(
      8,
      [&](Session& session, Problems& problems) {
        if (op == OpType::kAllgather) check_allgather(session, problems, {0, 1, 2, 3, 4, 5, 6, 7}, 0, 60001);
        if (op == OpType::kReducescatter) check_reducescatter(session, problems, 2100003);
        if (op == OpType::kBroadcast) check_broadcast(session, problems, 3, 2100001);
        done.arrive_and_wait();
      },
      [&](config::RuntimeConfig& config) {
        config.hostname = "host" + std::to_string(host_of(placement, config.rank));
        config.hierarchical_allreduce = config.hierarchical_allgather = true;
        config.shared_memory = shared;
      });
  const bool is_chain = op == OpType::kBroadcast && placement == 0;  // which overlaps by itself
  const int owners = placement == 0 ? 3 : 8;
  CHECK(beside == (is_chain ? 0 : owners));
}

#ifdef HVD_FAILPOINTS
TEST_CASE("The first alltoall of a set connects its members at the same time, and nobody else", "[multi][engine]") {
  const std::vector<int> some = {1, 2, 3, 5, 6, 7};
  std::uint64_t threads = 0;
  std::barrier has_lanes(std::ssize(some), [&]() noexcept { threads = failpoint::passages("thread.start"); });
  std::barrier done(8, [&]() noexcept { threads = failpoint::passages("thread.start") - threads; });
  REQUIRE(failpoint::arm("data.connect=error@1000").is_ok());  // counts, and nothing else
  run_job(
      8,
      [&](Session& session, Problems& problems) {
        if (std::ranges::find(some, session.topology().rank) == some.end()) return done.arrive_and_wait();
        std::vector<float> data(6, 1.0F);
        Operation first = allreduce("first", data, ReduceOp::kSum, 1);
        first.op = OpType::kBroadcast;
        first.root_rank = 1;
        problems.expect_ok(wait(session.enqueue(std::move(first))), "broadcast");
        has_lanes.arrive_and_wait();
        std::vector<float> all;
        Operation operation = allgather("all", data, all, 1);
        operation.op = OpType::kAlltoall;
        operation.splits = std::vector<std::int64_t>(6, 1);
        problems.expect_ok(wait(session.enqueue(std::move(operation))), "alltoall");
        problems.expect(all == std::vector<float>(6, 1.0F), "wrong alltoall");
        done.arrive_and_wait();
      },
      [](config::RuntimeConfig& config) { config.shared_memory = false; },
      [&](int) { return JobFixture::RankLists{some}; });
  const std::uint64_t connections = failpoint::passages("data.connect");
  REQUIRE(failpoint::arm("").is_ok());
  CHECK(connections == 15);
  CHECK(threads > 0);
}
#endif

TEST_CASE("A rank that goes ends the steps of a hierarchical allreduce on all others", "[multi][engine]") {
  const int gone = GENERATE(0, 3, 7);  // who owns the slice of a host of four, another there; the only one of its host
  const std::size_t count = GENERATE(300001U, 1000001U);  // in one piece, and in two
  run_job(
      8,
      [&](Session& session, Problems& problems) {
        std::vector<float> data(count, 1.0F);
        Status status;
        for (int call = 0; status.is_ok(); ++call) {
          if (session.topology().rank == gone && call == 2) return session.announce_failure("it has had enough");
          status = wait(session.enqueue(allreduce("on", data, ReduceOp::kMax)));
        }
        problems.expect(status.message().find("it has had enough") != std::string::npos, status.to_string());
      },
      [](config::RuntimeConfig& config) { config.hostname = "host" + std::to_string(expected(config.rank).second); });
}

TEST_CASE("Options that ranks must agree on are refused on all ranks where they differ", "[multi][engine]") {
  struct Difference {
    void (*change)(config::RuntimeConfig& config);
    const char* error;
  };
  using Seconds = std::chrono::seconds;
  const Difference differences[] = {
      {[](config::RuntimeConfig& config) { config.hierarchical_allreduce = true; },
       "HOROVOD_HIERARCHICAL_ALLREDUCE must be the same on all ranks: rank 0 has unset, rank 2 has 1"},
      {[](config::RuntimeConfig& config) { config.hierarchical_allgather = false; },
       "HOROVOD_HIERARCHICAL_ALLGATHER must be the same on all ranks: rank 0 has unset, rank 2 has 0"},
      {[](config::RuntimeConfig& config) { config.torus_allreduce = true; },
       "HOROVOD_TORUS_ALLREDUCE must be the same on all ranks: rank 0 has 0, rank 2 has 1"},
      {[](config::RuntimeConfig& config) { config.sockets_per_peer = 4; },
       "HOROVOD_SOCKETS_PER_PEER must be the same on all ranks: rank 0 has 0, rank 2 has a number"},
      {[](config::RuntimeConfig& config) { config.stall_check_time = Seconds(5); },
       "HOROVOD_STALL_CHECK_TIME_SECONDS must be the same on all ranks: rank 0 has 60, rank 2 has 5"},
      {[](config::RuntimeConfig& config) { config.stall_check_disable = true; },
       "HOROVOD_STALL_CHECK_TIME_SECONDS must be the same on all ranks: rank 0 has 60, rank 2 has 0"},
      {[](config::RuntimeConfig& config) { config.stall_shutdown_time = Seconds(90); },
       "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS must be the same on all ranks: rank 0 has 0, rank 2 has 90"},
      {[](config::RuntimeConfig& config) { config.no_progress_limit = Seconds(7); },
       "the limit without progress (HOROVOD_GLOO_TIMEOUT_SECONDS) must be the same on all ranks: rank 0 has 600, "
       "rank 2 has 7"},
  };
  for (const Difference& difference : differences) {
    JobFixture job(3);
    job.run([](Session&) {},
            [&](config::RuntimeConfig& config) {
              if (config.rank == 2) difference.change(config);
            });
    for (const std::string& error : job.errors()) CHECK(error == std::string("invalid argument: ") + difference.error);
  }
}

TEST_CASE("A rank is what the answer to its join says, whatever its environment says", "[multi][engine]") {
  JobFixture job(3, std::make_shared<ReversedPlan>());
  Problems problems;
  static thread_local int slot = 0;
  job.run(
      [&](Session& session) {
        const JobTopology& own = session.topology();
        problems.expect(own.rank == 2 - slot && own.local_rank == own.rank && own.size == 3, "wrong numbers");
        std::vector<float> mine = {static_cast<float>(own.rank)};
        std::vector<float> all;
        problems.expect_ok(wait(session.enqueue(allgather("a", mine, all))), "allgather");
        problems.expect(all == std::vector<float>{0, 1, 2}, "wrong allgather");
      },
      [](config::RuntimeConfig& config) { slot = config.rank; });
  for (const std::string& error : job.errors()) CHECK(error == "");
  CHECK(problems.text() == "");
}
