// Every operation, type, reduction, size and alignment on every backend, against the same made by one thread.
#include <catch2/catch.hpp>

#include "test/runtime/collectives/conformance/conformance.h"

namespace hvd::collectives {
namespace {

// Every backend with every number of ranks.
std::vector<std::pair<Kind, int>> all_kinds() {
  std::vector<std::pair<Kind, int>> all;
  for (const Kind& kind : kinds()) {
    for (const int size : kind.sizes) all.emplace_back(kind, size);
  }
  return all;
}

// What any rank found wrong with any case. `expected`: of each case, made once.
// `number`: of the case.
using OneCase = std::function<std::string(const Rank&, const Case&, const Bytes& expected, std::size_t number)>;
std::string run_on_all(const Kind& kind, int size, const OneCase& run, const std::vector<Case>& cases) {
  std::vector<std::string> problems(static_cast<std::size_t>(size));
  const std::vector<Bytes> expected = results_of(cases, size);
  const std::unique_ptr<World> world = kind.make(size);
  run_sets(*world, {all_of(size)}, [&](std::size_t, int rank, CollectiveBackend& backend) {
    const Rank own(rank, size, backend);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const std::string found = run(own, cases[i], expected[i], i);
      if (!found.empty()) problems[static_cast<std::size_t>(rank)] += cases[i].text() + found + "\n";
    }
  });
  return joined(problems);
}

// By turns.
Parts parts_of(std::size_t number) { return kAllParts[number % std::size(kAllParts)]; }

TEST_CASE("Allreduces have the bits of one thread's, in place and not, on every backend", "[multi][conformance]") {
  const auto [kind, size] = GENERATE(from_range(all_kinds()));
  const auto run = [lists = kind.takes_lists](const Rank& rank, const Case& c, const Bytes& sum, std::size_t) {
    return rank.allreduce(c, sum) + (lists ? rank.allreduce_list(c, sum) : "");
  };
  INFO(kind.name << ", " << size << " ranks");
  CHECK(run_on_all(kind, size, run, reductions(kind)) == "");
}

TEST_CASE("Allreduces have these bits with every number of ranks that chooses another algorithm",
          "[multi][conformance]") {
  const Kind kind = GENERATE(from_range(kinds()));
  std::vector<Case> cases = reductions(kind);
  std::erase_if(cases, [](const Case& c) { return !is_common(c.dtype); });
  const auto run = [](const Rank& rank, const Case& c, const Bytes& sum, std::size_t) {
    return rank.allreduce(c, sum);
  };
  for (const int size : kind.more_sizes) {
    INFO(kind.name << ", " << size << " ranks");
    CHECK(run_on_all(kind, size, run, cases) == "");
  }
}

TEST_CASE("A reducescatter gives each rank its part, however uneven, on every backend", "[multi][conformance]") {
  const auto [kind, size] = GENERATE(from_range(all_kinds()));
  std::vector<Case> cases = reductions(kind);
  std::erase_if(cases, [](const Case& c) {
    return c.dtype == DataType::kInt8 || c.dtype == DataType::kUint16 || c.dtype == DataType::kFloat64;
  });
  const auto run = [lists = kind.takes_lists](const Rank& rank, const Case& c, const Bytes& sum, std::size_t number) {
    return rank.reducescatter(c, sum, parts_of(number)) + (lists ? rank.scatter_list(c, sum) : "");
  };
  INFO(kind.name << ", " << size << " ranks");
  CHECK(run_on_all(kind, size, run, cases) == "");
}

TEST_CASE("What is only moved arrives as it was, on every backend", "[multi][conformance]") {
  const auto [kind, size] = GENERATE(from_range(all_kinds()));
  std::vector<Case> cases;
  for (const DataType dtype : {DataType::kUint8, DataType::kBfloat16, DataType::kFloat32, DataType::kInt64}) {
    for (const std::int64_t count : kind.counts) {
      for (const std::size_t offset : kOffsets) cases.push_back({.dtype = dtype, .count = count, .offset = offset});
    }
  }
  cases.push_back({.dtype = DataType::kFloat32, .count = kind.most});
  const auto run = [&kind = kind, size = size](const Rank& rank, const Case& c, const Bytes&, std::size_t number) {
    return rank.broadcast(c, static_cast<int>(number) % size) + rank.allgather(c, parts_of(number)) +
           (kind.has_alltoall ? rank.alltoall(c) : "") + (kind.takes_lists ? rank.gather_list(c) : "");
  };
  INFO(kind.name << ", " << size << " ranks");
  CHECK(run_on_all(kind, size, run, cases) == "");
}

TEST_CASE("What a backend takes is what it is tested for", "[unit][conformance]") {
  const Kind kind = GENERATE(from_range(kinds()));
  INFO(kind.name);
  const int size = kind.sizes.empty() ? kind.more_sizes.back() : kind.sizes.back();
  const std::unique_ptr<World> world = kind.make(size);
  const auto backend = world->backend(all_of(size), 0, 0);
  CHECK(backend->traits().takes_segments == kind.takes_lists);
  CHECK(backend->why_not({.op = OpType::kAlltoall}).empty() == kind.has_alltoall);
  for (const OpType op : {OpType::kAllreduce, OpType::kReducescatter, OpType::kAllgather, OpType::kBroadcast}) {
    CHECK(backend->why_not({.op = op}) == "");
  }
}

}  // namespace
}  // namespace hvd::collectives
