#include "runtime/fusion/fusion_buffer.h"

#include <catch2/catch.hpp>
#include <cstdint>

namespace hvd::fusion {
namespace {

TEST_CASE("FusionBuffer is allocated when first needed, aligned, grown and kept", "[unit][fusion]") {
  FusionBuffer buffer;
  CHECK(buffer.capacity() == 0);
  auto first = buffer.reserve(100).value();
  CHECK(first.size() == 100);
  CHECK(reinterpret_cast<std::uintptr_t>(first.data()) % FusionBuffer::kAlignment == 0);
  first[99] = std::byte{7};
  CHECK(buffer.reserve(50).value().data() == first.data());
  CHECK(buffer.capacity() == 100);
  const auto grown = buffer.reserve(1 << 20).value();
  CHECK(reinterpret_cast<std::uintptr_t>(grown.data()) % FusionBuffer::kAlignment == 0);
  CHECK(buffer.capacity() == 1 << 20);
  CHECK(buffer.reserve(0).value().empty());
}

TEST_CASE("FusionBuffer says how much memory there was not, and works again after that", "[unit][fusion]") {
  FusionBuffer buffer;
  const auto refused = buffer.reserve(std::size_t{1} << 62);
  CHECK(refused.status().code() == StatusCode::kInternal);
  CHECK_THAT(refused.status().message(), Catch::Contains("4611686018427387904 bytes"));
  CHECK(buffer.capacity() == 0);
  CHECK(buffer.reserve(64).is_ok());
}

}  // namespace
}  // namespace hvd::fusion
