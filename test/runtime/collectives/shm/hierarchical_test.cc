// Collectives host by host in pieces: the hosts are groups of threads, and what is between them is shared memory, too.
#include <barrier>
#include <catch2/catch.hpp>
#include <map>
#include <mutex>

#include "runtime/base/event.h"
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

// Takes one piece of memory, as Gloo, which stands in inside a host without shared memory; and no call that `refuse`
// has an error for.
class WithoutLists final : public CollectiveBackend {
 public:
  using Refuse = std::function<Status()>;
  explicit WithoutLists(
      std::unique_ptr<CollectiveBackend> backend, Refuse refuse = [] { return Status::ok(); })
      : backend_(std::move(backend)), refuse_(std::move(refuse)) {}
  std::string_view name() const override { return "without lists"; }
  std::string why_not(const CallTraits& call) const override { return backend_->why_not(call); }
  void start(const CollectiveCall& call, Completion done) override {
    const Status refused = call.segments.empty() ? refuse_() : Status::internal("a list");
    refused.is_ok() ? backend_->start(call, std::move(done)) : done(refused);
  }
  const Memory& memory(MemoryKind kind) const override { return backend_->memory(kind); }
  std::shared_ptr<void> allocate_staging(MemoryKind kind, std::size_t bytes) override {
    return backend_->allocate_staging(kind, bytes);
  }
  void abort(const Status& why) override { backend_->abort(why); }

 private:
  std::unique_ptr<CollectiveBackend> backend_;
  Refuse refuse_;
};

// Each host and each slice has a region of its own.
HostGroups groups_of(
    const Hosts& hosts, const ShmRanks& ranks, int rank, bool lists = true,
    WithoutLists::Refuse refuse_across = [] { return Status::ok(); }) {
  HostGroups groups{.hosts = hosts, .owner_bytes = 64};
  groups.slices = static_cast<int>(std::ranges::min(hosts, {}, &std::vector<int>::size).size());
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    const auto at = std::ranges::find(hosts[host], rank);
    if (at == hosts[host].end()) continue;
    groups.host = static_cast<int>(host);
    groups.local_rank = static_cast<int>(at - hosts[host].begin());
    if (hosts[host].size() < 2) continue;
    std::unique_ptr<CollectiveBackend> local = ranks.backend(hosts[host], rank, host);
    groups.local = list_of(lists ? std::move(local) : std::make_unique<WithoutLists>(std::move(local)));
  }
  if (groups.local_rank >= groups.slices) return groups;
  std::vector<int> owners;
  for (const auto& host : hosts) owners.push_back(host[static_cast<std::size_t>(groups.local_rank)]);
  auto across = ranks.backend(owners, rank, hosts.size() + static_cast<std::size_t>(groups.local_rank));
  groups.across = list_of(std::make_unique<WithoutLists>(std::move(across), std::move(refuse_across)));
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

// Of so many elements in all: about as many for each rank, or more for later ones and none for rank 2.
std::vector<std::int64_t> counts_of(std::int64_t count, int size, bool are_equal) {
  std::vector<std::int64_t> counts;
  std::int64_t left = count;
  for (int rank = 0; rank + 1 < size; ++rank) {
    const std::int64_t share = are_equal ? count / size : rank == 2 ? 0 : count * (rank + 1) / (size * size);
    counts.push_back(share);
    left -= share;
  }
  counts.push_back(left);
  return counts;
}

// Where a rank's part is, in bytes.
std::pair<std::size_t, std::size_t> part_of(const Case& c, const std::vector<std::int64_t>& counts, int rank) {
  const auto own = counts.begin() + rank;
  return {c.bytes(std::accumulate(counts.begin(), own, std::int64_t{0})), c.bytes(*own)};
}

Bytes cut_out(const Bytes& whole, std::pair<std::size_t, std::size_t> part) {
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(part.first);
  return {begin, begin + static_cast<std::ptrdiff_t>(part.second)};
}

// "" or what is wrong with it on this rank, in other memory and where the part is in the input.
std::string reducescatter(CollectiveBackend& backend, const Case& c, const std::vector<std::int64_t>& counts, int rank,
                          const Bytes& sum) {
  const auto own = part_of(c, counts, rank);
  const Bytes expected = cut_out(sum, own);
  const Bytes input = input_of(c, rank);
  Buffer source(input, c.offset);
  Buffer beside(expected.size(), c.offset);
  CollectiveCall call{.op = OpType::kReducescatter, .dtype = c.dtype, .reduce_op = c.op, .scaling = c.scaling};
  call.input = source.data();
  call.output = beside.data();
  call.rank_counts = counts;
  if (const Status status = run_call(backend, call); !status.is_ok()) return status.to_string();
  if (!beside.holds(expected)) return "other bits in other memory";
  if (!source.holds(input)) return "the input was written";
  call.output = source.data() + own.first;
  if (const Status status = run_call(backend, call); !status.is_ok()) return status.to_string();
  Bytes all = input;
  std::ranges::copy(expected, all.begin() + static_cast<std::ptrdiff_t>(own.first));
  return source.holds(all) ? "" : "other bits in place";
}

// Likewise.
std::string allgather(CollectiveBackend& backend, const Case& c, const std::vector<std::int64_t>& counts, int rank) {
  const auto own = part_of(c, counts, rank);
  const Bytes expected = input_of(c, 0);
  Buffer source(cut_out(expected, own), c.offset);
  Buffer whole(expected.size(), c.offset);
  CollectiveCall call{.op = OpType::kAllgather, .dtype = c.dtype};
  call.input = source.data();
  call.output = whole.data();
  call.count = counts[static_cast<std::size_t>(rank)];
  call.rank_counts = counts;
  if (const Status status = run_call(backend, call); !status.is_ok()) return status.to_string();
  if (!whole.holds(expected)) return "other bits in other memory";
  if (!source.holds(cut_out(expected, own))) return "the input was written";
  Bytes own_only(expected.size(), 0xdd);
  std::ranges::copy(cut_out(expected, own), own_only.begin() + static_cast<std::ptrdiff_t>(own.first));
  Buffer in_place(own_only, c.offset);
  call.input = in_place.data() + own.first;
  call.output = in_place.data();
  if (const Status status = run_call(backend, call); !status.is_ok()) return status.to_string();
  return in_place.holds(expected) ? "" : "other bits in place";
}

std::string broadcast(CollectiveBackend& backend, const Case& c, int root, int rank) {
  const Bytes expected = input_of(c, root);
  Buffer data(rank == root ? expected : Bytes(expected.size(), 0xdd), c.offset);
  CollectiveCall call{
      .op = OpType::kBroadcast, .dtype = c.dtype, .output = data.data(), .count = c.count, .root = root};
  if (const Status status = run_call(backend, call); !status.is_ok()) return status.to_string();
  return data.holds(expected) ? "" : "other bits of rank " + std::to_string(root);
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
    HierarchicalBackend backend(groups_of(hosts, ranks, rank, options.lists));
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
    return allreduce(backend, all[i], rank, expected[i]);
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
    return reducescatter(backend, all[i], counts_of(all[i].count, size, i % 2 == 0), rank, sums[i]);
  };
  CHECK(run_on_all(hosts, size, all, run_one, {.lists = lists}) == "");
}

TEST_CASE("Allgathers and broadcasts in pieces are right, on hosts of any sizes", "[multi][collectives]") {
  const auto& [hosts, size] = GENERATE(from_range(kHosts));
  const bool lists = GENERATE(true, false);
  std::vector<Case> all = cases(owners_of(hosts));
  std::erase_if(all, [](const Case& c) { return c.op != ReduceOp::kSum; });
  const OneCall gather = [&, size = size](CollectiveBackend& backend, std::size_t i, int rank) {
    return allgather(backend, all[i], counts_of(all[i].count, size, i % 2 == 0), rank);
  };
  CHECK(run_on_all(hosts, size, all, gather, {.lists = lists}) == "");
  const OneCall send = [&, size = size](CollectiveBackend& backend, std::size_t i, int rank) {
    return broadcast(backend, all[i], static_cast<int>(i) % size, rank);
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
    HierarchicalBackend short_of(groups_of(hosts, ranks, rank, true, refuse));
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
    const Status status = steps.add("across " + std::to_string(number));
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
  const Status status = run_call(backend, call);
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
