#include "runtime/fusion/fusion_buffer.h"

#include <catch2/catch.hpp>
#include <vector>

namespace hvd::fusion {
namespace {

TEST_CASE("FusionBuffer takes its memory when first needed, grows by replacing it, and keeps it", "[unit][fusion]") {
  std::vector<std::size_t> allocated;
  std::weak_ptr<void> first;
  FusionBuffer buffer([&](std::size_t bytes) {
    CHECK(first.expired());  // what there was is given back before more is taken
    allocated.push_back(bytes);
    std::shared_ptr<void> memory(::operator new(bytes), [](void* taken) { ::operator delete(taken); });
    first = memory;
    return memory;
  });
  CHECK(buffer.capacity() == 0);
  CHECK(buffer.reserve(0).value().empty());
  const auto some = buffer.reserve(100).value();
  CHECK(some.size() == 100);
  some[99] = std::byte{7};
  CHECK(buffer.reserve(50).value().data() == some.data());
  CHECK(buffer.capacity() == 100);
  CHECK(buffer.reserve(1 << 20).is_ok());
  CHECK(buffer.capacity() == 1 << 20);
  CHECK(allocated == std::vector<std::size_t>{100, 1 << 20});
}

TEST_CASE("FusionBuffer says how much memory there was not, and works again after that", "[unit][fusion]") {
  FusionBuffer buffer([](std::size_t bytes) -> std::shared_ptr<void> {
    if (bytes > 1000) return nullptr;
    return {::operator new(bytes), [](void* memory) { ::operator delete(memory); }};
  });
  const auto refused = buffer.reserve(4611686018427387904U);
  CHECK(refused.status().code() == StatusCode::kInternal);
  CHECK_THAT(refused.status().message(), Catch::Contains("4611686018427387904 bytes"));
  CHECK(buffer.capacity() == 0);
  CHECK(buffer.reserve(64).is_ok());
}

}  // namespace
}  // namespace hvd::fusion
