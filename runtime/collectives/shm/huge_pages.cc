#include "runtime/collectives/shm/huge_pages.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "runtime/collectives/shm/segment.h"

namespace hvd::collectives {
namespace {

// The kernel's, from linux/fs.h of 6.7: Debian 12's has them not.
struct PageRegion {
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t categories;
};
struct PageScan {
  std::uint64_t size = sizeof(PageScan);
  std::uint64_t flags = 0;
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t walk_end = 0;  // where it has stopped
  std::uint64_t regions = 0;
  std::uint64_t regions_length = 0;
  std::uint64_t max_pages = 0;
  std::uint64_t inverted = 0;
  std::uint64_t all_of = 0;
  std::uint64_t any_of = 0;
  std::uint64_t told = 0;
};
static_assert(sizeof(PageScan) == 96);
constexpr unsigned long kPagemapScan = _IOWR('f', 16, PageScan);
constexpr std::uint64_t kIsHuge = 1U << 6;

constexpr std::size_t kSmallShare = 8;      // one of so many pages may be small
constexpr std::size_t kLeastStride = 2048;  // pages; to look at as many costs about as much as two more questions

}  // namespace

bool HugePages::hold(const shm::TensorStream& tensors) {
  std::size_t bytes = 0;
  const auto each = [&](const auto& f) {
    tensors.visit({0, tensors.size()}, [&](const std::byte* input, std::byte* output, std::size_t, std::size_t size) {
      f(input, size);
      if (output != input) f(output, size);
    });
  };
  each([&](const std::byte*, std::size_t size) { bytes += size; });
  const std::size_t most = bytes / kSmallShare / ShmSegment::page();
  std::size_t small = 0;
  each([&](const std::byte* memory, std::size_t size) {
    if (small <= most) small += small_pages(memory, size, most - small).value_or(most + 1);
  });
  return small <= most;
}

// The kernel is asked where huge pages are: of what is no ordinary memory, as a device's, it says nothing either way.
// It looks at every small page, so it is never shown more of them than decide.
std::optional<std::size_t> HugePages::small_pages(const std::byte* memory, std::size_t bytes, std::size_t most) {
  if (!is_known_) return std::nullopt;
  if (!pagemap_.valid()) pagemap_ = Fd(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  const std::size_t page = ShmSegment::page();
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  std::array<PageRegion, 32> regions;
  PageScan scan{.start = address / page * page,
                .regions = reinterpret_cast<std::uintptr_t>(regions.data()),
                .regions_length = regions.size(),
                .all_of = kIsHuge,
                .told = kIsHuge};
  const std::uint64_t end = (address + bytes + page - 1) / page * page;
  std::size_t small = 0;
  while (scan.start < end && small <= most) {
    const std::size_t left = (end - scan.start) / page;
    scan.end = scan.start + std::min(left, std::max(most - small + 1, kLeastStride)) * page;
    const int found = ::ioctl(pagemap_.get(), kPagemapScan, &scan);
    is_known_ = found >= 0 && scan.walk_end > scan.start;
    if (!is_known_) return std::nullopt;
    std::size_t huge = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(found); ++i)
      huge += (regions[i].end - regions[i].start) / page;
    small += (scan.walk_end - scan.start) / page - huge;
    scan.start = scan.walk_end;
  }
  return small;
}

}  // namespace hvd::collectives
