#include "runtime/collectives/nccl/agreement.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

namespace hvd::collectives::nccl {

bool MemberFacts::refuse(const Status& why) {
  can = 0;
  waited = why.code() == StatusCode::kTimeout ? 1 : 0;
  why_not = {};
  std::string text = why.message();
  const bool fits = text.size() < kMostText;
  if (!fits) text = text.substr(0, kMostText - 4) + "...";
  std::memcpy(why_not.data(), text.data(), text.size());
  return fits;
}

namespace {

// The first that refuses for a reason of its own, else the first that does.
std::string first_refusal(std::span<const MemberFacts> members, std::span<const int> ranks) {
  std::string waited;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const MemberFacts& member = members[i];
    if (member.can != 0) continue;
    const std::string why(member.why_not.data(), ::strnlen(member.why_not.data(), MemberFacts::kMostText));
    std::string text = "rank " + std::to_string(ranks[i]) + ": " + why;
    if (member.waited == 0) return text;
    if (waited.empty()) waited = text;
  }
  return waited;
}

}  // namespace

std::string why_no_communicator(std::span<const MemberFacts> members, std::span<const int> ranks,
                                std::span<const int> hosts) {
  if (std::string refusal = first_refusal(members, ranks); !refusal.empty()) return refusal;
  std::map<cuda::Uuid, int> rank_on;
  std::map<std::pair<int, std::int64_t>, int> rank_at;
  const bool all_share = std::ranges::all_of(members, [](const MemberFacts& member) { return member.shares_gpu != 0; });
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::string rank = "rank " + std::to_string(ranks[i]);
    const MemberFacts& member = members[i];
    if (member.version != members[0].version) {
      return rank + " has NCCL " + version_text(member.version) + ", rank " + std::to_string(ranks[0]) + " has " +
             version_text(members[0].version);
    }
    const auto [other, is_alone] = rank_on.emplace(member.gpu, ranks[i]);
    const auto [beside, is_whole] = rank_at.emplace(std::pair(hosts[i], member.bus), ranks[i]);
    if (is_alone && is_whole) continue;
    std::string pair = "rank " + std::to_string(is_alone ? beside->second : other->second) + " and " + rank +
                       (is_alone ? " have slices (MIG) of one GPU" : " share a GPU");
    if (member.version < kTakesRanksOnOneGpu) return pair;
    if (!all_share) return pair + ", and not every rank has NCCL_MULTI_RANK_GPU_ENABLE=1";
  }
  return "";
}

std::string why_no_float8(std::span<const MemberFacts> members, std::span<const int> ranks) {
  if (members[0].version < kReducesFloat8) {
    return "NCCL reduces 8-bit floats from version " + version_text(kReducesFloat8) + " on, and this is " +
           version_text(members[0].version);
  }
  const auto old = std::ranges::find_if(members, [](const MemberFacts& m) { return m.capability < kFloat8Capability; });
  if (old == members.end()) return "";
  return "NCCL reduces 8-bit floats on GPUs of compute capability 9.0 or later, and that of rank " +
         std::to_string(ranks[static_cast<std::size_t>(old - members.begin())]) + " has " +
         std::to_string(old->capability / 10) + "." + std::to_string(old->capability % 10);
}

std::string shared_gpus(std::span<const MemberFacts> members, std::span<const int> ranks, std::span<const int> hosts) {
  struct Sharing {
    std::vector<std::string> ranks;
    int sees = 0;
    int host = 0;
  };
  std::map<cuda::Uuid, Sharing> gpus;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].sees == 0) continue;
    Sharing& one = gpus[members[i].gpu];
    one.ranks.push_back(std::to_string(ranks[i]));
    one.sees = std::max(one.sees, members[i].sees);
    one.host = hosts[i];
  }
  std::string text;
  for (const auto& [uuid, one] : gpus) {
    if (one.ranks.size() < 2) continue;
    const auto on_host = std::ranges::count(hosts, one.host);
    std::string list = one.ranks.front();
    for (std::size_t i = 1; i < one.ranks.size(); ++i)
      list += (i + 1 < one.ranks.size() ? ", " : " and ") + one.ranks[i];
    text += (text.empty() ? "" : "; ") + ("ranks " + list) + " share the GPU of UUID " + cuda::uuid_text(uuid);
    if (on_host > one.sees) {
      text += ", because their host has " + std::to_string(on_host) + " ranks and they see " +
              std::to_string(one.sees) + (one.sees == 1 ? " GPU" : " GPUs") + " (CUDA_VISIBLE_DEVICES says which)";
    } else {
      text += " and see " + std::to_string(one.sees) +
              ": is torch.cuda.set_device(hvd.local_rank()) missing, or not the first use of a GPU?";
    }
  }
  return text;
}

}  // namespace hvd::collectives::nccl
