#include "runtime/negotiation/group_table.h"

namespace hvd::negotiation {

std::uint64_t group_key(std::span<const std::string> names) {
  // FNV-1a; a length before each name keeps {"ab"} and {"a", "b"} apart.
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&hash](std::uint64_t byte) { hash = (hash ^ (byte & 0xff)) * 0x100000001b3u; };
  for (const std::string& name : names) {
    for (int shift = 0; shift < 32; shift += 8) mix(name.size() >> shift);
    for (const char c : name) mix(static_cast<unsigned char>(c));
  }
  return hash == 0 ? 1 : hash;
}

}  // namespace hvd::negotiation
