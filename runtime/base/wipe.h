#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

// Memory that held a secret is erased before it goes back to where anybody gets it from.
namespace hvd {

inline void wipe(std::span<std::uint8_t> bytes) {
  if (!bytes.empty()) explicit_bzero(bytes.data(), bytes.size());  // data() of none may be null
}
// Empties it, too.
inline void wipe(std::string& text) {
  explicit_bzero(text.data(), text.size());
  text.clear();
}

// A buffer that is wiped when it is destroyed.
template <std::size_t N>
struct WipedBuffer {
  std::array<std::uint8_t, N> bytes{};
  ~WipedBuffer() { wipe(bytes); }
};

template <typename T>
struct WipingAllocator {
  using value_type = T;
  T* allocate(std::size_t count) { return std::allocator<T>().allocate(count); }
  void deallocate(T* memory, std::size_t count) {
    explicit_bzero(memory, count * sizeof(T));
    std::allocator<T>().deallocate(memory, count);
  }
  bool operator==(const WipingAllocator&) const = default;
};
// Also where it grows, and is moved to other memory.
using WipedBytes = std::vector<std::uint8_t, WipingAllocator<std::uint8_t>>;

}  // namespace hvd
