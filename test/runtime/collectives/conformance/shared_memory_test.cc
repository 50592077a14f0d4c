// The same reductions of tensors in memory that all ranks have mapped.
#include <catch2/catch.hpp>

#include "test/runtime/collectives/conformance/conformance.h"

namespace hvd::collectives {
namespace {

TEST_CASE("Tensors that are shared are reduced where they lie, to the same bits", "[multi][conformance]") {
  const Kind kind = kinds().front();
  const int size = GENERATE_COPY(from_range(kind.sizes));
  std::vector<Case> cases;
  for (const Case& c : reductions(kind)) {
    if (c.op == ReduceOp::kSum || c.dtype == DataType::kFloat32) cases.push_back(c);
  }
  const std::vector<Bytes> expected = results_of(cases, size);
  std::vector<std::string> problems(static_cast<std::size_t>(size));
  const ShmRanks ranks(size, 16U << 20);
  ranks.run([&](int rank, ShmBackend& backend) {
    const Rank own(rank, size, backend);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      for (const int private_rank : {-1, 1}) {
        const std::string found = own.allreduce_shared(cases[i], expected[i], ranks.arena(rank), private_rank);
        if (!found.empty()) problems[static_cast<std::size_t>(rank)] += cases[i].text() + found + "\n";
      }
    }
  });
  CHECK(joined(problems) == "");
}

}  // namespace
}  // namespace hvd::collectives
