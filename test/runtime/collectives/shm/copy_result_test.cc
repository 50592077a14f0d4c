#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "runtime/collectives/shm/parts.h"

namespace hvd::collectives::shm {

// Of a large result and of a small one; lines that are not whole, at both ends, are where it could go wrong.
TEST_CASE("copy_result copies exactly what it is told, however large the result is") {
  constexpr std::size_t kMost = 5 * kCacheLine;
  std::vector<std::byte> from(kMost);
  for (std::size_t i = 0; i < kMost; ++i) from[i] = static_cast<std::byte>(i + 1);
  for (const std::size_t result_bytes : {std::size_t{0}, SIZE_MAX}) {
    for (std::size_t offset = 0; offset <= kCacheLine; ++offset) {
      for (std::size_t bytes = 0; bytes + offset <= kMost - kCacheLine; bytes += bytes < 3 ? 1 : 13) {
        std::vector<std::byte> to(kMost);
        copy_result(to.data() + offset, from.data(), bytes, result_bytes);
        std::vector<std::byte> expected(kMost);
        std::copy_n(from.begin(), bytes, expected.begin() + static_cast<std::ptrdiff_t>(offset));
        CAPTURE(result_bytes, offset, bytes);
        REQUIRE(to == expected);
      }
    }
  }
}

}  // namespace hvd::collectives::shm
