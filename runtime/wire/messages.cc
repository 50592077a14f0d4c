#include "runtime/wire/messages.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

namespace hvd::wire {
namespace {

std::uint64_t mix(std::uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A sum of these over the ranks does not depend on their order.
std::uint64_t device_hash(int rank, int device) {
  if (device == kCpuDevice) return 0;
  return mix((static_cast<std::uint64_t>(rank) << 20) + static_cast<std::uint64_t>(device) + 1);
}

}  // namespace

std::string factor_text(double factor) {
  std::array<char, 40> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), factor).ptr};
}

int count_ranks(const RankRuns& runs) {
  return std::accumulate(runs.begin(), runs.end(), 0, [](int sum, const RankRun& run) { return sum + run.count; });
}

bool merge_runs(RankRuns& into, const RankRuns& other) {
  RankRuns all;
  all.reserve(into.size() + other.size());
  std::merge(into.begin(), into.end(), other.begin(), other.end(), std::back_inserter(all),
             [](const RankRun& a, const RankRun& b) { return a.first < b.first; });
  RankRuns merged;
  for (const RankRun& run : all) {
    const int end = merged.empty() ? -1 : merged.back().first + merged.back().count;
    if (run.first < end) return false;
    if (run.first == end && run.first_dim == merged.back().first_dim) {
      merged.back().count += run.count;
    } else {
      merged.push_back(run);
    }
  }
  into = std::move(merged);
  return true;
}

bool has_first_dims(const Request& request) { return request.op == OpType::kAllgather && !request.shape.empty(); }

MergedRequest::MergedRequest(Request one)
    : request(std::move(one)), devices_key(device_hash(request.rank, request.device)) {
  ranks.push_back({request.rank, 1, has_first_dims(request) ? request.shape.front() : 0});
}

MergedChange::MergedChange(SetChange one) : change(std::move(one)) { ranks.push_back({change.rank, 1, 0}); }

std::uint64_t digest_of(const std::vector<int>& ranks) {
  std::uint64_t digest = ranks.size();
  for (const int rank : ranks) digest = mix(digest * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank) + 1);
  return digest;
}

namespace {

void add_ranks(std::vector<int>& ranks, const std::vector<int>& more) {
  std::vector<int> both;
  std::set_union(ranks.begin(), ranks.end(), more.begin(), more.end(), std::back_inserter(both));
  ranks = std::move(both);
}

}  // namespace

std::uint32_t Wait::millis_of(std::chrono::milliseconds span) {
  constexpr std::chrono::milliseconds::rep kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::clamp<std::chrono::milliseconds::rep>(span.count(), 0, kMost));
}

void Wait::merge(const Wait& other) {
  add_ranks(ranks, other.ranks);
  add_ranks(peers, other.peers);
  millis = std::max(millis, other.millis);
}

void GroupKey::add(const std::string& name) {
  const auto mix = [this](std::uint64_t byte) { hash_ = (hash_ ^ (byte & 0xff)) * 0x100000001b3u; };
  // A length before each name keeps {"ab"} and {"a", "b"} apart.
  for (int shift = 0; shift < 32; shift += 8) mix(name.size() >> shift);
  for (const char c : name) mix(static_cast<unsigned char>(c));
}

void make_group(std::vector<Request>& requests) {
  if (requests.size() < 2) return;
  GroupKey key;
  for (const Request& request : requests) key.add(request.name);
  for (Request& request : requests) {
    request.group_key = key.value();
    request.group_size = static_cast<std::uint32_t>(requests.size());
  }
}

bool SetDecision::changes_sets() const {
  if (error != StatusCode::kOk) return false;
  return std::any_of(entries.begin(), entries.end(),
                     [&](const Entry& entry) { return kind == SetChange::Kind::kRemove || !entry.existed; });
}

Status Stop::status() const {
  switch (kind) {
    case Kind::kShutdown:
    case Kind::kStall: return Status::aborted(message);
    case Kind::kAbort: return Status::peer_lost(message);
  }
  return Status::internal("unknown kind of stop: " + message);
}

}  // namespace hvd::wire
