// Allreduces host by host in pieces: the hosts are groups of threads, and what is between them is shared memory, too.
#include <barrier>
#include <catch2/catch.hpp>
#include <map>
#include <mutex>

#include "runtime/base/failpoint.h"
#include "runtime/collectives/hierarchical_backend.h"
#include "test/runtime/collectives/shm/conformance_cases.h"
#include "test/runtime/collectives/shm/shm_ranks.h"

namespace hvd::collectives {
namespace {

using Hosts = std::vector<std::vector<int>>;

std::shared_ptr<BackendList> list_of(std::unique_ptr<CollectiveBackend> backend) {
  std::vector<std::unique_ptr<CollectiveBackend>> list;
  list.push_back(std::move(backend));
  return std::make_shared<BackendList>(std::move(list));
}

// Each host and each slice has a region of its own.
HostGroups groups_of(const Hosts& hosts, const ShmRanks& ranks, int rank) {
  HostGroups groups{.hosts = hosts, .owner_bytes = 64};
  groups.slices = static_cast<int>(std::ranges::min(hosts, {}, &std::vector<int>::size).size());
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    const auto at = std::ranges::find(hosts[host], rank);
    if (at == hosts[host].end()) continue;
    groups.host = static_cast<int>(host);
    groups.local_rank = static_cast<int>(at - hosts[host].begin());
    if (hosts[host].size() > 1) groups.local = list_of(ranks.backend(hosts[host], rank, host));
  }
  if (groups.local_rank >= groups.slices) return groups;
  std::vector<int> owners;
  for (const auto& host : hosts) owners.push_back(host[static_cast<std::size_t>(groups.local_rank)]);
  groups.across = list_of(ranks.backend(owners, rank, hosts.size() + static_cast<std::size_t>(groups.local_rank)));
  return groups;
}

// What one thread makes of it: sums of hosts, and then their sum.
Bytes reduced_by_host(const Case& c, const Hosts& hosts) {
  Bytes sum;
  for (const auto& host : hosts) {
    Bytes of_host;
    for (const int rank : host) {
      Bytes next = input_of(c, rank);
      kernels::scale_copy(c.dtype, next.data(), next.data(), c.count, c.scaling.before);
      if (!of_host.empty()) kernels::reduce(c.dtype, c.op, next.data(), of_host.data(), next.data(), c.count);
      of_host = std::move(next);
    }
    if (!sum.empty()) kernels::reduce(c.dtype, c.op, of_host.data(), sum.data(), of_host.data(), c.count);
    sum = std::move(of_host);
  }
  kernels::scale_result(c.dtype, sum.data(), sum.data(), c.count, c.scaling);
  return sum;
}

// "" or what is wrong with it on this rank, beside its input and in place.
std::string allreduce(CollectiveBackend& backend, const Case& c, int rank, const Bytes& expected) {
  const Bytes input = input_of(c, rank);
  Buffer source(input, c.offset);
  Buffer beside(input.size(), c.offset);
  CollectiveCall call{.dtype = c.dtype, .reduce_op = c.op, .scaling = c.scaling, .count = c.count};
  call.input = source.data();
  call.output = beside.data();
  if (const Status status = run_call(backend, call); !status.is_ok()) return status.to_string();
  if (!beside.holds(expected)) return "other bits in other memory";
  if (!source.holds(input)) return "the input was written";
  call.input = nullptr;
  call.output = source.data();
  if (const Status status = run_call(backend, call); !status.is_ok()) return status.to_string();
  return source.holds(expected) ? "" : "other bits in place";
}

#ifdef HVD_SANITIZED
constexpr std::int64_t kPieces[] = {1, 3};
constexpr int kEach = 5;  // type: uint8, int64, bfloat16
#else
constexpr std::int64_t kPieces[] = {0, 1, 3};
constexpr int kEach = 1;
#endif

// Around what is so many pieces; of so many owners.
std::vector<Case> cases(std::int64_t owners) {
  std::vector<Case> all;
  for (int d = 0; d < kDataTypeCount; d += kEach) {
    const auto dtype = static_cast<DataType>(d);
    const std::int64_t piece = owners * 64 / static_cast<std::int64_t>(element_size(dtype));
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      if (!kernels::can_reduce(dtype, op)) continue;
      const bool overflows = op == ReduceOp::kProduct && element_size(dtype) == 2;
      for (const std::int64_t pieces : kPieces) {
        for (const std::int64_t count : {pieces * piece - 1, pieces * piece, pieces * piece + 1}) {
          if (count < 0 || (overflows && count > 8)) continue;  // infinities
          all.push_back({dtype, op, count, {}, static_cast<std::size_t>(count % 2)});
        }
      }
    }
  }
  for (const DataType dtype : {DataType::kFloat32, DataType::kFloat16, DataType::kInt64}) {
    all.push_back({dtype, ReduceOp::kSum, 10007, {0.7, 1.0 / 3.0}});
  }
  all.push_back({DataType::kInt32, ReduceOp::kSum, 10007, {1.0, 1.0, 3}});
  return all;
}

// What went wrong first on any rank. `failpoints`: from when all ranks have their threads.
std::string run_on_all(const Hosts& hosts, int size, const std::vector<Case>& all, const std::string& failpoints = "") {
  std::vector<Bytes> expected;
  for (const Case& c : all) expected.push_back(reduced_by_host(c, hosts));
  const ShmRanks ranks(size);
  std::vector<std::string> wrong(static_cast<std::size_t>(size));
  Status armed;
  std::barrier begin(size, [&]() noexcept { armed = failpoint::arm(failpoints); });
  ranks.run([&](int rank, ShmBackend&) {
    begin.arrive_and_wait();
    HierarchicalBackend backend(groups_of(hosts, ranks, rank));
    std::string& problem = wrong[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string found = allreduce(backend, all[i], rank, expected[i]);
      if (!found.empty() && problem.empty()) problem = all[i].text() + found;  // and goes on with the others
    }
  });
  REQUIRE(armed.is_ok());
  const auto found = std::ranges::find_if(wrong, [](const std::string& problem) { return !problem.empty(); });
  return found == wrong.end() ? "" : *found;
}

TEST_CASE("Allreduces in pieces have the bits of one thread, on hosts of any sizes", "[multi][collectives]") {
  const auto hosts = GENERATE(Hosts{{0, 1}, {2, 3}}, Hosts{{0, 2}, {1, 3}}, Hosts{{0}, {1, 2, 3}, {4, 5}});
  const std::int64_t owners = std::ssize(hosts) * std::ssize(hosts.front());
  CHECK(run_on_all(hosts, hosts.size() == 2 ? 4 : 6, cases(owners)) == "");
}

#ifdef HVD_FAILPOINTS
TEST_CASE("Allreduces in pieces need no other thread, on one member or on any", "[multi][collectives]") {
  const std::string which = GENERATE("1", "1+");
  const Case c{DataType::kFloat32, ReduceOp::kSum, 10007};
  CHECK(run_on_all({{0, 1}, {2, 3}}, 4, {c}, "thread.start=ENOMEM@" + which) == "");
  CHECK(failpoint::passages("thread.start") >= 4);
  CHECK(failpoint::arm("").is_ok());
}
#endif

TEST_CASE("An abort ends an allreduce in pieces wherever it is", "[multi][collectives]") {
  const Hosts hosts = {{0, 1}, {2, 3}};
  const int gone = GENERATE(0, 3);
  const ShmRanks ranks(4);
  std::vector<Status> ends(4);
  ranks.run([&](int rank, ShmBackend&) {
    HierarchicalBackend backend(groups_of(hosts, ranks, rank));
    std::vector<float> data(100000);
    const CollectiveCall call{.output = data.data(), .count = std::ssize(data)};
    Status& end = ends[static_cast<std::size_t>(rank)];
    end = run_call(backend, call);
    if (rank == gone || !end.is_ok()) return;
    const std::jthread aborter = start_thread("aborter", [&](const std::stop_token&) {
      while (backend.progress().waits_for.empty()) std::this_thread::yield();
      backend.abort(Status::peer_lost("it is gone"));
    });
    end = run_call(backend, call);
  });
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(ends[static_cast<std::size_t>(rank)].message() == (rank == gone ? "" : "it is gone"));
  }
}

// What a member does, step by step, with nobody else there. Steps between hosts wait, within limits, for the steps
// inside that are to go on meanwhile.
struct Steps {
  std::mutex mutex;
  std::vector<std::string> done;
  std::vector<std::thread::id> across_on;
  std::map<std::string, Status> failing;
  bool is_across = false;

  Status add(const std::string& step) {
    const std::lock_guard lock(mutex);
    done.push_back(step);
    const auto failure = failing.find(step);
    return failure == failing.end() ? Status::ok() : failure->second;
  }
  bool has(const std::string& step) {
    const std::lock_guard lock(mutex);
    return std::ranges::find(done, step) != done.end();
  }
  bool comes(const std::string& step) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!has(step) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return has(step);
  }
};

class Part final : public CollectiveBackend {
 public:
  explicit Part(std::function<Status(const CollectiveCall&, int number)> step) : step_(std::move(step)) {}
  std::string_view name() const override { return "part"; }
  std::string why_not(const CallTraits&) const override { return ""; }
  void start(const CollectiveCall& call, Completion done) override { done(step_(call, numbers_[call.op]++)); }
  const Memory& memory(MemoryKind) const override { return host_memory(); }
  std::shared_ptr<void> allocate_staging(MemoryKind, std::size_t bytes) override {
    return host_memory().allocate(bytes);
  }
  void abort(const Status&) override {}

 private:
  const std::function<Status(const CollectiveCall&, int number)> step_;
  std::map<OpType, int> numbers_;
};

// An allreduce of the first of two members on one of two hosts, in so many pieces.
Status reduce_alone(Steps& steps, int pieces) {
  const auto local = [&](const CollectiveCall& call, int number) {
    return steps.add((call.op == OpType::kReducescatter ? "scatter " : "gather ") + std::to_string(number));
  };
  const auto across = [&, pieces](const CollectiveCall&, int number) {
    steps.is_across = true;
    const auto is_missing = [&](const char* step, int of) {
      return of >= 0 && of < pieces && !steps.comes(step + std::to_string(of));
    };
    if (steps.failing.empty() && (is_missing("scatter ", number + 1) || is_missing("gather ", number - 1))) {
      return Status::timeout("nothing goes on beside piece " + std::to_string(number));
    }
    steps.across_on.push_back(std::this_thread::get_id());
    const Status status = steps.add("across " + std::to_string(number));
    steps.is_across = false;
    return status;
  };
  HostGroups groups{.hosts = {{0, 1}, {2, 3}}, .slices = 2, .owner_bytes = 64};
  groups.local = list_of(std::make_unique<Part>(local));
  groups.across = list_of(std::make_unique<Part>(across));
  HierarchicalBackend backend(std::move(groups));
  std::vector<float> data(static_cast<std::size_t>(pieces) * 64);
  const Status status = run_call(backend, {.output = data.data(), .count = std::ssize(data)});
  CHECK_FALSE(steps.is_across);
  return status;
}

TEST_CASE("While a piece is between hosts, the next is scattered and the last gathered", "[unit][collectives]") {
  Steps steps;
  CHECK(reduce_alone(steps, 5).to_string() == "ok");
  CHECK(steps.done.size() == 15);
  CHECK(std::ranges::find(steps.across_on, std::this_thread::get_id()) == steps.across_on.end());
}

TEST_CASE("An allreduce of one piece stays on its thread", "[unit][collectives]") {
  Steps steps;
  CHECK(reduce_alone(steps, 1).to_string() == "ok");
  CHECK(steps.done == std::vector<std::string>{"scatter 0", "across 0", "gather 0"});
  CHECK(steps.across_on == std::vector{std::this_thread::get_id()});
}

TEST_CASE("A step that fails ends an allreduce in pieces when nothing is between hosts any more",
          "[unit][collectives]") {
  const std::string step =
      GENERATE("scatter 0", "scatter 2", "across 0", "across 1", "across 4", "gather 0", "gather 4");
  Steps steps;
  steps.failing[step] = Status::internal("it broke");
  CHECK(reduce_alone(steps, 5).message() == "it broke");
  const bool is_across = step.starts_with("across");
  if (is_across) CHECK(steps.across_on.size() == static_cast<std::size_t>(step.back() - '0') + 1);
  CHECK(!steps.has("gather " + std::to_string(step.back() - '0' + (is_across ? 0 : 1))));
}

}  // namespace
}  // namespace hvd::collectives
