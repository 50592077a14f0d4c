#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/hosts/host_spec.h"

namespace hvd::launcher {

// The slots of a round on one host, in the order of their local ranks.
struct HostSlots {
  std::string host;
  std::vector<int> slots;
  std::string node = {};  // see HostSpec

  bool operator==(const HostSlots&) const = default;
};

inline int size_of(const std::vector<HostSlots>& hosts) {
  int size = 0;
  for (const HostSlots& host : hosts) size += static_cast<int>(host.slots.size());
  return size;
}

// The ranks of a round, by slot. Hosts are in order, ranks are consecutive on a host, and a slot's local rank is its
// place on its host; neighbours that are parts of one machine count as one host. Rank 0, whose state the others take
// over, is `leader`: its host comes first then, and it changes places with the first slot there; so no other rank moves
// when the leader's host is the first. Pure. Requires: the leader is among the slots.
std::map<int, Placement> rank_slots(std::vector<HostSlots> hosts, int leader);

}  // namespace hvd::launcher
