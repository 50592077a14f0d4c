// The same reductions where tensors lie in memory that all ranks have mapped, or are read in other ranks' processes.
#include <catch2/catch.hpp>

#include "test/runtime/collectives/conformance/conformance.h"
#include "test/runtime/collectives/shm/cma_members.h"

namespace hvd::collectives {
namespace {

using OneCase = std::function<std::string(const Rank&, ShmBackend&, const Case&, const Bytes& expected)>;

// What any rank found wrong with any case.
std::string run_on(const ShmRanks& ranks, int size, const std::vector<Case>& cases, const OneCase& run) {
  const std::vector<Bytes> expected = results_of(cases, size);
  std::vector<std::string> problems(static_cast<std::size_t>(size));
  ranks.run([&](int rank, ShmBackend& backend) {
    const Rank own(rank, size, backend);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const std::string found = run(own, backend, cases[i], expected[i]);
      if (!found.empty()) problems[static_cast<std::size_t>(rank)] += cases[i].text() + found + "\n";
    }
  });
  return joined(problems);
}

TEST_CASE("Tensors that are shared are reduced where they lie, to the same bits", "[multi][conformance]") {
  const Kind kind = kinds().front();
  const int size = GENERATE_COPY(from_range(kind.sizes));
  std::vector<Case> cases = reductions(kind);
  std::erase_if(cases, [](const Case& c) { return c.op != ReduceOp::kSum && c.dtype != DataType::kFloat32; });
  const ShmRanks ranks(size, 16U << 20);
  CHECK(run_on(ranks, size, cases, [&](const Rank& own, ShmBackend&, const Case& c, const Bytes& sum) {
          return own.allreduce_shared(c, sum, ranks.arena(own.rank()), -1) +
                 own.allreduce_shared(c, sum, ranks.arena(own.rank()), 1);
        }) == "");
}

// As the kernel reads; under a sanitizer, which does not see that, as a thread does.
ReadProcess reader() {
#ifdef HVD_SANITIZED
  return read_visibly;
#else
  return ::process_vm_readv;
#endif
}

TEST_CASE("Private tensors that are read in other processes are reduced to the same bits", "[multi][conformance]") {
  constexpr std::size_t kSmall = 8192;  // not read
  const Kind kind = kinds().front();
  const int size = GENERATE_COPY(from_range(kind.sizes));
  std::vector<Case> cases = reductions(kind);
  std::erase_if(cases, [](const Case& c) { return c.bytes(c.count) <= kSmall; });
  const ShmRanks ranks(size, 0, [](int) { return CmaOptions{.use = true, .read = reader()}; });
  CHECK(cases.size() > 15);
  CHECK(run_on(ranks, size, cases, [](const Rank& own, ShmBackend& backend, const Case& c, const Bytes& sum) {
          std::string found = own.allreduce(c, sum);
          if (backend.path() != "cma") found += "it went otherwise";
          found += own.allreduce_list(c, sum);
          if (backend.path() != "cma") found += "the list went otherwise";
          return found;
        }) == "");
}

}  // namespace
}  // namespace hvd::collectives
