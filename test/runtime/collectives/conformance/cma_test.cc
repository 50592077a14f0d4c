// The same reductions of private tensors that the ranks read in each other's processes.
#include <catch2/catch.hpp>

#include "test/runtime/collectives/conformance/conformance.h"
#include "test/runtime/collectives/shm/cma_members.h"

namespace hvd::collectives {
namespace {

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
  const std::vector<Bytes> expected = results_of(cases, size);
  std::vector<std::string> problems(static_cast<std::size_t>(size));
  const ShmRanks ranks(size, 0, [](int) { return CmaOptions{.use = true, .read = reader()}; });
  ranks.run([&](int rank, ShmBackend& backend) {
    const Rank own(rank, size, backend);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      std::string found = own.allreduce(cases[i], expected[i]);
      if (backend.path() != "cma") found += "it went otherwise";
      found += own.allreduce_list(cases[i], expected[i]);
      if (backend.path() != "cma") found += "the list went otherwise";
      if (!found.empty()) problems[static_cast<std::size_t>(rank)] += cases[i].text() + found + "\n";
    }
  });
  CHECK(cases.size() > 15);
  CHECK(joined(problems) == "");
}

}  // namespace
}  // namespace hvd::collectives
