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

// A bell in memory that processes share: a word that counts how often it was rung, on which threads sleep.
namespace hvd::collectives {

inline std::uint32_t* futex_word(std::atomic<std::uint32_t>& word) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t), "a futex is a plain 32-bit word");
  return reinterpret_cast<std::uint32_t*>(&word);
}

// Between processes, so without FUTEX_PRIVATE_FLAG.
inline void ring(std::atomic<std::uint32_t>& bell) {
  bell.fetch_add(1);
  ::syscall(SYS_futex, futex_word(bell), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Sleeps while the bell stands at `rung`, for `limit` at most. May return early; true: because of a signal.
inline bool sleep_while(std::atomic<std::uint32_t>& bell, std::uint32_t rung,
                        std::optional<std::chrono::milliseconds> limit = std::nullopt) {
  timespec timeout{};
  if (limit) {
    timeout.tv_sec = static_cast<time_t>(limit->count() / 1000);
    timeout.tv_nsec = static_cast<long>(limit->count() % 1000) * 1000000;
  }
  const long result = ::syscall(SYS_futex, futex_word(bell), FUTEX_WAIT, rung, limit ? &timeout : nullptr, nullptr, 0);
  return result != 0 && errno == EINTR;
}

}  // namespace hvd::collectives
