#include "runtime/topology/capabilities.h"

#include <algorithm>
#include <string>

namespace hvd::topology {

void Capabilities::encode(ByteWriter& out) const {
  for (const std::uint64_t value : values_) out.put(value);
}

Capabilities Capabilities::decode(ByteReader& in) {
  Capabilities read;
  for (std::uint64_t& value : read.values_) value = in.get<std::uint64_t>();
  return read;
}

CapabilityMap::CapabilityMap(std::span<const Capabilities> by_rank) {
  for (const Capabilities& values : by_rank) add(1, values);
}

void CapabilityMap::add(int ranks, const Capabilities& values) {
  if (!runs_.empty() && runs_.back().values == values) {
    runs_.back().end += ranks;
  } else {
    runs_.push_back({(runs_.empty() ? 0 : runs_.back().end) + ranks, values});
  }
}

const Capabilities& CapabilityMap::of(int rank) const {
  return std::ranges::upper_bound(runs_, rank, {}, &Run::end)->values;
}

std::optional<int> CapabilityMap::first_without(Capability what, std::span<const int> ranks) const {
  const auto found = std::ranges::find_if(ranks, [&](int rank) { return of(rank)[what] == 0; });
  return found == ranks.end() ? std::nullopt : std::optional(*found);
}

void CapabilityMap::encode(ByteWriter& out) const {
  out.put(static_cast<std::uint32_t>(runs_.size()));
  int begin = 0;
  for (const Run& run : runs_) {
    out.put(static_cast<std::uint32_t>(run.end - begin));
    run.values.encode(out);
    begin = run.end;
  }
}

std::optional<CapabilityMap> CapabilityMap::decode(ByteReader& in, int size) {
  CapabilityMap map;
  const std::uint32_t count =
      in.get_count(static_cast<std::size_t>(size), sizeof(std::uint32_t) + Capabilities::kEncodedSize);
  int left = size;
  for (std::uint32_t i = 0; i < count && !in.failed(); ++i) {
    const auto ranks = in.get<std::uint32_t>();
    const Capabilities values = Capabilities::decode(in);
    if (ranks == 0 || ranks > static_cast<std::uint32_t>(left)) {
      in.fail("capabilities " + std::to_string(i) + " of " + std::to_string(ranks) + " ranks, where " +
              std::to_string(left) + " are left");
      break;
    }
    map.add(static_cast<int>(ranks), values);
    left -= static_cast<int>(ranks);
  }
  if (!in.failed() && left > 0) in.fail("no capabilities of the last " + std::to_string(left) + " ranks");
  return in.failed() ? std::nullopt : std::optional(std::move(map));
}

}  // namespace hvd::topology
