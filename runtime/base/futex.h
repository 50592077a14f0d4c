#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>
#include <optional>

// Words that threads sleep on. `flags`: FUTEX_PRIVATE_FLAG, unless processes share the word.
namespace hvd {

using FutexWord = std::atomic<std::uint32_t>;

// By its address alone: whoever is woken may be gone with the word already, as futexes allow.
inline void wake_all(FutexWord* word, int flags) {
  static_assert(sizeof(FutexWord) == sizeof(std::uint32_t), "a futex is a plain 32-bit word");
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), FUTEX_WAKE | flags, INT_MAX, nullptr, nullptr, 0);
}

// Sleeps while the word is `value`, for `limit` at most. May return early; true: because of a signal.
inline bool sleep_while(FutexWord& word, std::uint32_t value, int flags,
                        std::optional<std::chrono::milliseconds> limit = std::nullopt) {
  timespec timeout{};
  if (limit) {
    timeout.tv_sec = static_cast<time_t>(limit->count() / 1000);
    timeout.tv_nsec = static_cast<long>(limit->count() % 1000) * 1000000;
  }
  const long result = ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT | flags, value,
                                limit ? &timeout : nullptr, nullptr, 0);
  return result != 0 && errno == EINTR;
}

// A bell in memory that processes share: the word counts how often it was rung.
inline void ring(FutexWord& bell) {
  bell.fetch_add(1);
  wake_all(&bell, 0);
}

}  // namespace hvd
