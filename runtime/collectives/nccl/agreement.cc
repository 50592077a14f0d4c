#include "runtime/collectives/nccl/agreement.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace hvd::collectives::nccl {

void MemberFacts::refuse(const std::string& why) {
  can = 0;
  why_not = {};
  std::memcpy(why_not.data(), why.data(), std::min(why.size(), kMostText - 1));
}

std::string why_no_communicator(std::span<const MemberFacts> members, std::span<const int> ranks) {
  std::map<cuda::Uuid, int> rank_on;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::string rank = "rank " + std::to_string(ranks[i]);
    const MemberFacts& member = members[i];
    if (member.can == 0)
      return rank + ": " + std::string(member.why_not.data(), ::strnlen(member.why_not.data(), MemberFacts::kMostText));
    if (member.version != members[0].version) {
      return rank + " has NCCL " + version_text(member.version) + ", rank " + std::to_string(ranks[0]) + " has " +
             version_text(members[0].version);
    }
    const auto [other, is_alone] = rank_on.emplace(member.gpu, ranks[i]);
    if (!is_alone) return "rank " + std::to_string(other->second) + " and " + rank + " share a GPU";
  }
  return "";
}

}  // namespace hvd::collectives::nccl
