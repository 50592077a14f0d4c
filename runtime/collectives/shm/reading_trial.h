#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <span>

namespace hvd::collectives {

// Whether private tensors are read where they lie or staged: whatever took less time in the first calls of that size
// (from a power of two of bytes to the next), which go both ways by turns. It depends on the machine, its pages and
// caches more than on anything that could be asked beforehand. All members make the same calls and count them alike, so
// they try the same way at once; each decides by everybody's times, so all come to the same. Pure.
class ReadingTrial {
 public:
  // Whether each try is read. Calls of one size are often of two kinds, in turns: each kind goes both ways. The last
  // one tells all members the times.
  static constexpr std::array kReads{false, true, true, false, false, true};
  static constexpr int kTries = kReads.size();
  static constexpr int kEra = 512;  // calls after which all is tried anew: neighbours, pages and caches change

  // The least that a byte took in any try; a way that was not tried took for ever.
  struct Times {
    double staged_ns = std::numeric_limits<double>::infinity();
    double read_ns = std::numeric_limits<double>::infinity();
  };

  // Whether the next call of so many bytes had better be read.
  bool reads(std::size_t bytes) const;
  // Of this member, for such calls.
  Times times(std::size_t bytes) const;
  // In the last try, which all members have agreed to read: whether calls are read from now on, by what all of them
  // measured before. Nothing in other calls.
  std::optional<bool> decide(std::size_t bytes, std::span<const Times> of_all);
  // How a call went, on all members.
  void went(std::size_t bytes, bool was_read, std::chrono::nanoseconds time);

 private:
  struct Class {
    int calls = 0;  // of this era
    bool reads = false;
    Times times;
  };
  std::map<int, Class> classes_;  // by the logarithm of the bytes
};

}  // namespace hvd::collectives
