#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"

namespace hvd::topology {

// What a rank's process is able to do where it runs, and its user lets it. Unlike an option it may differ between
// ranks. The numbers are the places in a row.
enum class Capability : std::uint8_t {
  kSharedMemory = 0,  // 1: it can hand memory over to other processes of its host
};
inline constexpr std::size_t kCapabilityCount = 1;

// By capability: a small number, such as a version. 0: it is not there.
class Capabilities {
 public:
  std::uint64_t operator[](Capability what) const { return values_[static_cast<std::size_t>(what)]; }
  void set(Capability what, std::uint64_t value) { values_[static_cast<std::size_t>(what)] = value; }
  bool operator==(const Capabilities&) const = default;

  void encode(ByteWriter& out) const;
  static Capabilities decode(ByteReader& in);
  static constexpr std::size_t kEncodedSize = kCapabilityCount * sizeof(std::uint64_t);

 private:
  std::array<std::uint64_t, kCapabilityCount> values_{};
};

// The capabilities of all ranks of one epoch: the same value on every rank, so that what is chosen by them is the same
// too. Immutable. As large as there are runs of ranks that are alike, in memory and on the wire.
class CapabilityMap {
 public:
  // Requires: at least one rank.
  explicit CapabilityMap(std::span<const Capabilities> by_rank);

  int size() const { return runs_.back().end; }
  const Capabilities& of(int rank) const;
  // The first of `ranks` that does not have it; nothing when all do.
  std::optional<int> first_without(Capability what, std::span<const int> ranks) const;

  void encode(ByteWriter& out) const;
  // Fails `in` unless the next bytes are a map of `size` ranks.
  static std::optional<CapabilityMap> decode(ByteReader& in, int size);
  bool operator==(const CapabilityMap&) const = default;

 private:
  struct Run {
    int end;  // one more than its last rank
    Capabilities values;
    bool operator==(const Run&) const = default;
  };
  CapabilityMap() = default;
  void add(int ranks, const Capabilities& values);

  std::vector<Run> runs_;  // ascending by end; neighbours differ
};

}  // namespace hvd::topology
