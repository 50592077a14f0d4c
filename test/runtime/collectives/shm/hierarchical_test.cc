// Collectives host by host in pieces: the hosts are groups of threads, and what is between them is shared memory, too.
#include <barrier>
#include <catch2/catch.hpp>
#include <map>
#include <mutex>

#include "runtime/base/event.h"
#include "runtime/base/failpoint.h"
#include "runtime/collectives/hierarchical_backend.h"
#include "test/runtime/collectives/conformance/rank.h"
#include "test/runtime/collectives/shm/host_ranks.h"

namespace hvd::collectives {
namespace {

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

// By turns, for the case with this number.
Parts parts_of(std::size_t number) { return number % 2 == 0 ? Parts::kEven : Parts::kGrowing; }

// What went wrong first with a call on any rank.
using OneCall = std::function<std::string(CollectiveBackend& backend, std::size_t number, int rank)>;
struct Options {
  std::string failpoints{};  // from when all ranks have their threads
  bool lists = true;
};
std::string run_on_all(const Hosts& hosts, int size, const std::vector<Case>& all, const OneCall& run_one,
                       const Options& options) {
  const ShmRanks ranks(size);
  std::vector<std::string> wrong(static_cast<std::size_t>(size));
  Status armed;
  std::barrier begin(size, [&]() noexcept { armed = failpoint::arm(options.failpoints); });
  ranks.run([&](int rank, ShmBackend&) {
    begin.arrive_and_wait();
    HierarchicalBackend backend(groups_of(hosts, ranks, rank, {.lists = options.lists}));
    std::string& problem = wrong[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string found = run_one(backend, i, rank);
      if (!found.empty() && problem.empty()) problem = all[i].text() + found;  // and goes on with the others
    }
  });
  REQUIRE(armed.is_ok());
  const auto found = std::ranges::find_if(wrong, [](const std::string& problem) { return !problem.empty(); });
  return found == wrong.end() ? "" : *found;
}

std::string allreduce_on_all(const Hosts& hosts, int size, const std::vector<Case>& all, const Options& options = {}) {
  std::vector<Bytes> expected;
  for (const Case& c : all) expected.push_back(reduced_by_host(c, hosts));
  const OneCall run_one = [&](CollectiveBackend& backend, std::size_t i, int rank) {
    return Rank(rank, size, backend).allreduce(all[i], expected[i]);
  };
  return run_on_all(hosts, size, all, run_one, options);
}

std::int64_t owners_of(const Hosts& hosts) {
  return std::ssize(hosts) * std::ssize(std::ranges::min(hosts, {}, &std::vector<int>::size));
}

// Also of two slices, one of which has two owners' parts on one host.
const std::vector<std::pair<Hosts, int>> kHosts = {
    {{{0, 1}, {2, 3}}, 4}, {{{0, 2}, {1, 3}}, 4}, {{{0}, {1, 2, 3}, {4, 5}}, 6}, {{{0, 2, 4}, {1, 3}}, 5}};

TEST_CASE("Allreduces in pieces have the bits of one thread, on hosts of any sizes", "[multi][collectives]") {
  const auto& [hosts, size] = GENERATE(from_range(kHosts));
  CHECK(allreduce_on_all(hosts, size, cases(owners_of(hosts))) == "");
}

// With lists inside hosts and without.
TEST_CASE("Reducescatters in pieces have the bits of one thread, on hosts of any sizes", "[multi][collectives]") {
  const auto& [hosts, size] = GENERATE(from_range(kHosts));
  const bool lists = GENERATE(true, false);
  const std::vector<Case> all = cases(owners_of(hosts));
  std::vector<Bytes> sums;
  for (const Case& c : all) sums.push_back(reduced_by_host(c, hosts));
  const OneCall run_one = [&, size = size](CollectiveBackend& backend, std::size_t i, int rank) {
    return Rank(rank, size, backend).reducescatter(all[i], sums[i], parts_of(i));
  };
  CHECK(run_on_all(hosts, size, all, run_one, {.lists = lists}) == "");
}

TEST_CASE("Allgathers and broadcasts in pieces are right, on hosts of any sizes", "[multi][collectives]") {
  const auto& [hosts, size] = GENERATE(from_range(kHosts));
  const bool lists = GENERATE(true, false);
  std::vector<Case> all = cases(owners_of(hosts));
  std::erase_if(all, [](const Case& c) { return c.op != ReduceOp::kSum; });
  const OneCall gather = [&, size = size](CollectiveBackend& backend, std::size_t i, int rank) {
    return Rank(rank, size, backend).allgather(all[i], parts_of(i));
  };
  CHECK(run_on_all(hosts, size, all, gather, {.lists = lists}) == "");
  const OneCall send = [&, size = size](CollectiveBackend& backend, std::size_t i, int rank) {
    return Rank(rank, size, backend).broadcast(all[i], static_cast<int>(i) % size);
  };
  CHECK(run_on_all(hosts, size, all, send, {.lists = lists}) == "");
}

#ifdef HVD_FAILPOINTS
TEST_CASE("Allreduces in pieces need no other thread, on one member or on any", "[multi][collectives]") {
  const std::string which = GENERATE("1", "1+");
  const Case c{DataType::kFloat32, ReduceOp::kSum, 10007};
  CHECK(allreduce_on_all({{0, 1}, {2, 3}}, 4, {c}, {.failpoints = "thread.start=ENOMEM@" + which}) == "");
  CHECK(failpoint::passages("thread.start") >= 4);
  CHECK(failpoint::arm("").is_ok());
}
#endif

// One of 100,000 elements, where all of them are, for a rank of four.
CollectiveCall large_call(OpType op, std::vector<float>& data, int rank) {
  data.resize(100000);
  CollectiveCall call{.op = op, .output = data.data(), .count = std::ssize(data)};
  if (op == OpType::kAllreduce || op == OpType::kBroadcast) return call;
  call.rank_counts.assign(4, 25000);
  float* const own = data.data() + static_cast<std::ptrdiff_t>(rank) * 25000;
  call.count = 25000;
  call.input = op == OpType::kAllgather ? own : data.data();
  if (op == OpType::kReducescatter) call.output = own;
  return call;
}

// One brings so many pieces and then no more.
TEST_CASE("An abort ends a call in pieces wherever it is", "[multi][collectives]") {
  const OpType op = GENERATE(OpType::kAllreduce, OpType::kReducescatter, OpType::kAllgather, OpType::kBroadcast);
  const int brought = GENERATE(0, 1, 7);
  const Hosts hosts = {{0, 1}, {2, 3}};
  const int gone = GENERATE(0, 3);
  if (op == OpType::kBroadcast && gone == 3) return;  // nobody waits for who only receives
  const ShmRanks ranks(4);
  std::vector<Status> ends(4);
  Event has_gone;
  ranks.run([&](int rank, ShmBackend&) {
    int pieces = 0;
    const auto refuse = [&] { return pieces++ < brought ? Status::ok() : Status::internal("it goes"); };
    HierarchicalBackend whole(groups_of(hosts, ranks, rank));
    HierarchicalBackend short_of(groups_of(hosts, ranks, rank, {.refuse_across = refuse}));
    HierarchicalBackend& backend = rank == gone ? short_of : whole;
    std::vector<float> data;
    const CollectiveCall call = large_call(op, data, rank);
    Status& end = ends[static_cast<std::size_t>(rank)];
    if (rank == gone) {
      end = run_call(backend, call);
      return has_gone.set();
    }
    const std::jthread aborter = start_thread("aborter", [&](const std::stop_token&) {
      has_gone.wait();
      backend.abort(Status::peer_lost("it is gone"));
    });
    end = run_call(backend, call);
  });
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(ends[static_cast<std::size_t>(rank)].message() == (rank == gone ? "it goes" : "it is gone"));
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

// What the first member of the first host does in a call, and by which of its host's collectives; kBarrier: by none.
struct Shape {
  OpType op;
  Hosts hosts;
  OpType before;
  OpType after;
  int root = 0;
};

// A call of so many pieces, as large as `size` of them.
Status run_alone(Steps& steps, const Shape& shape, int pieces, int size) {
  const auto local = [&](const CollectiveCall& call, int number) {
    return steps.add((call.op == shape.before ? "before " : "after ") + std::to_string(number));
  };
  const auto across = [&, pieces](const CollectiveCall&, int number) {
    steps.is_across = true;
    const auto is_missing = [&](OpType by, const char* step, int of) {
      return by != OpType::kBarrier && of >= 0 && of < pieces && !steps.comes(step + std::to_string(of));
    };
    if (steps.failing.empty() &&
        (is_missing(shape.before, "before ", number + 1) || is_missing(shape.after, "after ", number - 1))) {
      return Status::timeout("nothing goes on beside piece " + std::to_string(number));
    }
    steps.across_on.push_back(std::this_thread::get_id());
    Status status = steps.add("across " + std::to_string(number));
    steps.is_across = false;
    return status;
  };
  HostGroups groups{.hosts = shape.hosts, .slices = 2, .owner_bytes = 64};
  groups.local = list_of(std::make_unique<Part>(local));
  groups.across = list_of(std::make_unique<Part>(across));
  HierarchicalBackend backend(std::move(groups));
  std::size_t members = 0;
  for (const std::vector<int>& host : shape.hosts) members += host.size();
  std::vector<float> data(static_cast<std::size_t>(size) * 64 * members);
  CollectiveCall call{.op = shape.op, .input = data.data(), .output = data.data(), .root = shape.root};
  call.count = static_cast<std::int64_t>(size) * 64;  // elements of any type that pieces are cut at
  call.rank_counts.assign(members, call.count);
  Status status = run_call(backend, call);
  CHECK_FALSE(steps.is_across);
  return status;
}

const Hosts kEqual = {{0, 1}, {2, 3}};
const Hosts kUnequal = {{0, 1, 2}, {3, 4}};
const std::vector<Shape> kShapes = {
    {OpType::kAllreduce, kEqual, OpType::kReducescatter, OpType::kAllgather},
    {OpType::kReducescatter, kEqual, OpType::kReducescatter, OpType::kBarrier},
    {OpType::kReducescatter, kUnequal, OpType::kReducescatter, OpType::kAllgather},
    {OpType::kAllgather, kEqual, OpType::kBarrier, OpType::kAllgather},
    {OpType::kBroadcast, kEqual, OpType::kBroadcast, OpType::kBarrier},
    {OpType::kBroadcast, kEqual, OpType::kBarrier, OpType::kAllgather, 2},
};

TEST_CASE("While a piece is between hosts, the steps inside are done of the next and of the last",
          "[unit][collectives]") {
  const Shape shape = GENERATE(from_range(kShapes));
  Steps steps;
  CHECK(run_alone(steps, shape, 5, 5).to_string() == "ok");
  const bool has_both = shape.before != OpType::kBarrier && shape.after != OpType::kBarrier;
  CHECK(steps.done.size() == (has_both ? 15 : 10));
  CHECK(std::ranges::find(steps.across_on, std::this_thread::get_id()) == steps.across_on.end());
}

TEST_CASE("A call of one piece stays on its thread", "[unit][collectives]") {
  const Shape shape = GENERATE(from_range(kShapes));
  Steps steps;
  CHECK(run_alone(steps, shape, 1, 1).to_string() == "ok");
  std::vector<std::string> expected;
  if (shape.before != OpType::kBarrier) expected.emplace_back("before 0");
  expected.emplace_back("across 0");
  if (shape.after != OpType::kBarrier) expected.emplace_back("after 0");
  CHECK(steps.done == expected);
  CHECK(steps.across_on == std::vector{std::this_thread::get_id()});
}

TEST_CASE("A broadcast to more than one other host is one piece", "[unit][collectives]") {
  Steps steps;
  const Shape shape{OpType::kBroadcast, {{0, 1}, {2, 3}, {4, 5}}, OpType::kBroadcast, OpType::kBarrier};
  CHECK(run_alone(steps, shape, 1, 5).to_string() == "ok");
  CHECK(steps.done == std::vector<std::string>{"before 0", "across 0"});
}

TEST_CASE("A step that fails ends a call in pieces when nothing is between hosts any more", "[unit][collectives]") {
  const Shape shape = GENERATE(from_range(kShapes));
  const std::string step = GENERATE("before 0", "before 2", "across 0", "across 1", "across 4", "after 0", "after 4");
  const OpType by = step.starts_with("before") ? shape.before : step.starts_with("after") ? shape.after : shape.op;
  if (by == OpType::kBarrier) return;
  Steps steps;
  steps.failing[step] = Status::internal("it broke");
  CHECK(run_alone(steps, shape, 5, 5).message() == "it broke");
  const bool is_across = step.starts_with("across");
  if (is_across) CHECK(steps.across_on.size() == static_cast<std::size_t>(step.back() - '0') + 1);
  CHECK(!steps.has("after " + std::to_string(step.back() - '0' + (is_across ? 0 : 1))));
}

}  // namespace
}  // namespace hvd::collectives
