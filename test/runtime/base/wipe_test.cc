#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <map>

#include "runtime/base/fd.h"
#include "runtime/base/wipe.h"

using namespace hvd;

namespace {

std::uint8_t secret(std::size_t at) { return static_cast<std::uint8_t>(at * 37 + 11); }

}  // namespace

TEST_CASE("Memory that held input is wiped when it grows and when it goes", "[unit][base]") {
  std::map<off_t, std::size_t> used;  // the addresses where the bytes were, with how many
  {
    WipedBytes bytes;
    for (std::size_t i = 0; i < 5000; ++i) {
      bytes.push_back(secret(i));
      used[static_cast<off_t>(reinterpret_cast<std::uintptr_t>(bytes.data()))] = bytes.size();
    }
  }
  const Fd memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  constexpr std::size_t kFrom = 300;  // the allocator writes at the beginning of what is free
  int looked_at = 0;
  for (const auto& [address, size] : used) {
    std::array<std::uint8_t, 64> now{};
    if (size < kFrom + now.size()) continue;
    if (pread(memory.get(), now.data(), now.size(), address + static_cast<off_t>(kFrom)) < 0) continue;  // unmapped
    ++looked_at;
    std::size_t same = 0;
    for (std::size_t i = 0; i < now.size(); ++i) same += now[i] == secret(kFrom + i) ? 1U : 0U;
    CHECK(same < now.size() / 2);
  }
  CHECK(looked_at > 0);
}
