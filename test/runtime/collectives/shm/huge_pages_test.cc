// Which memory lies in huge pages, and that tensors there are read in other processes.
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

#include "runtime/collectives/shm/huge_pages.h"
#include "test/runtime/collectives/shm/cma_members.h"

namespace hvd::collectives {
namespace {

constexpr std::size_t kHuge = std::size_t{2} << 20;
constexpr std::size_t kLarge = CmaAllreduce::kCmaBytes;

// Zeros that were written, so that the pages are there, at a multiple of 2 MiB.
std::shared_ptr<std::byte> touched(std::size_t bytes, int advice) {
  const std::size_t mapped = bytes + kHuge;
  void* const memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();  // threads may not assert
  const std::size_t skip = (kHuge - reinterpret_cast<std::uintptr_t>(memory) % kHuge) % kHuge;
  std::shared_ptr<std::byte> aligned(static_cast<std::byte*>(memory) + skip,
                                     [memory, mapped](std::byte*) { ::munmap(memory, mapped); });
  ::madvise(memory, mapped, advice);
  std::memset(aligned.get(), 0, bytes);
  return aligned;
}

std::size_t pages(std::size_t bytes) { return bytes / ShmSegment::page(); }

// Whether the system gives huge pages to who asks for them, and says where they are.
bool has_huge_pages() {
  HugePages question;
  const auto memory = touched(kLarge, MADV_HUGEPAGE);
  const std::optional<std::size_t> small = question.small_pages(memory.get(), kLarge, pages(kLarge));
  if (small == 0U) return true;
  WARN("not tested: this system " << (small ? "gives no huge pages" : "does not say which pages are huge"));
  return false;
}

TEST_CASE("Memory in small pages is told from memory in huge ones", "[unit][collectives]") {
  if (!has_huge_pages()) return;
  HugePages question;
  const auto huge = touched(4 * kHuge, MADV_HUGEPAGE);
  const auto small = touched(4 * kHuge, MADV_NOHUGEPAGE);
  CHECK(question.small_pages(huge.get(), 4 * kHuge, 0) == 0U);
  CHECK(question.small_pages(huge.get() + 5, kHuge, 0) == 0U);
  CHECK(question.small_pages(small.get(), 4 * kHuge, SIZE_MAX / 2) == pages(4 * kHuge));
  CHECK(question.small_pages(small.get() + 5, 4 * ShmSegment::page(), 100) == 5U);
  CHECK(question.small_pages(small.get(), 4 * kHuge, 10) > 10U);
  // Where nothing is mapped, which the kernel passes over as it does a device's memory.
  CHECK(question.small_pages(nullptr, 4 * kHuge, pages(4 * kHuge)) == pages(4 * kHuge));
  // Half of a huge page given back, so that it is cut, and memory that nobody has touched.
  REQUIRE(::madvise(huge.get() + kHuge, kHuge / 2, MADV_DONTNEED) == 0);
  CHECK(question.small_pages(huge.get(), 4 * kHuge, pages(4 * kHuge)) == pages(kHuge));
  // More regions than one answer of the kernel has.
  const auto large = touched(80 * kHuge, MADV_HUGEPAGE);
  for (std::size_t i = 0; i < 80; i += 2) ::madvise(large.get() + i * kHuge, kHuge, MADV_DONTNEED);
  CHECK(question.small_pages(large.get(), 80 * kHuge, pages(80 * kHuge)) == pages(40 * kHuge));
}

TEST_CASE("Tensors lie in huge pages when seven of eight bytes of inputs and outputs do", "[unit][collectives]") {
  if (!has_huge_pages()) return;
  HugePages question;
  const auto huge = touched(7 * kHuge, MADV_HUGEPAGE);
  const auto small = touched(7 * kHuge, MADV_NOHUGEPAGE);
  const auto hold = [&](std::size_t in_huge, std::size_t in_small) {
    shm::TensorStream tensors;
    tensors.add(huge.get(), huge.get(), in_huge);
    tensors.add(small.get(), small.get(), in_small);
    return question.hold(tensors);
  };
  CHECK(hold(7 * kHuge, 0));
  CHECK(hold(7 * kHuge, kHuge));
  CHECK_FALSE(hold(7 * kHuge, kHuge + kHuge / 2));
  CHECK_FALSE(hold(0, kHuge));
  shm::TensorStream beside;
  beside.add(huge.get(), small.get(), 7 * kHuge);
  CHECK_FALSE(question.hold(beside));
}

TEST_CASE("Lists of many small tensors are staged wherever they lie", "[multi][collectives]") {
  if (!has_huge_pages()) return;
  constexpr std::size_t kMost = kLarge / CmaAllreduce::kTensorBytes;
  const CmaMembers members(2, [](int) { return CmaOptions{}; });
  std::vector<std::shared_ptr<std::byte>> memory;
  for (int rank = 0; rank < 2; ++rank) memory.push_back(touched(kLarge, MADV_HUGEPAGE));
  const auto in_tensors = [&](std::size_t tensors) {
    const auto count = static_cast<std::int64_t>(kLarge / sizeof(float) / tensors);
    const auto outcomes = members.allreduce_list([&](int rank) {
      std::vector<Segment> list(tensors);
      auto* at = reinterpret_cast<float*>(memory[static_cast<std::size_t>(rank)].get());
      for (Segment& tensor : list) {
        tensor = {.input = at, .output = at, .count = count};
        at += count;
      }
      return list;
    });
    return outcomes[0].path + ", " + outcomes[1].path;
  };
  CHECK(in_tensors(kMost) == "cma, cma");
  CHECK(in_tensors(2 * kMost) == "staged, staged");
}

TEST_CASE("Large private tensors in huge pages on all members are read, others staged", "[multi][collectives]") {
  if (!has_huge_pages()) return;
  const CmaMembers members(2, [](int) { return CmaOptions{}; });
  const auto count = static_cast<std::int64_t>(kLarge / sizeof(float));
  const auto huge = [](int, std::size_t bytes) { return touched(bytes, MADV_HUGEPAGE); };
  CHECK(all_went(members.allreduce(count, huge), "cma"));
  CHECK(all_went(members.allreduce(count - 1, huge), "staged"));
  const auto small = [](int rank, std::size_t bytes) {
    return touched(bytes, rank == 1 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  };
  CHECK(all_went(members.allreduce(count, small), "staged"));
  CHECK(all_went(members.allreduce(count, huge), "cma"));
  const CmaMembers without(2, [](int) { return CmaOptions{.use = false}; });
  CHECK(all_went(without.allreduce(count, huge), "staged"));
}

}  // namespace
}  // namespace hvd::collectives
