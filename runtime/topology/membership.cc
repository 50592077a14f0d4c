#include "runtime/topology/membership.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <unordered_map>

namespace hvd::topology {

namespace {

// `hosts` hosts from `first_host` on, each with `ranks` ranks in a row.
struct Block {
  std::uint32_t first_host = 0;
  std::uint16_t hosts = 0;
  std::uint16_t ranks = 0;
};
constexpr std::size_t kBlockSize = 8;
constexpr int kMaxInBlock = std::numeric_limits<std::uint16_t>::max();

// Runs of ranks of one host, put together where runs of one length follow each other host by host.
std::vector<Block> blocks_of(const std::vector<int>& host_of) {
  std::vector<Block> blocks;
  for (std::size_t at = 0; at < host_of.size();) {
    const int host = host_of[at];
    int ranks = 0;
    for (; at < host_of.size() && host_of[at] == host && ranks < kMaxInBlock; ++at) ++ranks;
    const bool follows = !blocks.empty() && blocks.back().ranks == ranks && blocks.back().hosts < kMaxInBlock &&
                         static_cast<int>(blocks.back().first_host) + blocks.back().hosts == host;
    if (follows) {
      ++blocks.back().hosts;
    } else {
      blocks.push_back({static_cast<std::uint32_t>(host), 1, static_cast<std::uint16_t>(ranks)});
    }
  }
  return blocks;
}

}  // namespace

HostMap::HostMap(std::vector<int> host_of) : host_of_(std::move(host_of)) {
  const int hosts = *std::max_element(host_of_.begin(), host_of_.end()) + 1;
  first_.assign(static_cast<std::size_t>(hosts) + 1, 0);
  for (const int host : host_of_) ++first_[static_cast<std::size_t>(host) + 1];
  for (std::size_t host = 1; host < first_.size(); ++host) first_[host] += first_[host - 1];
  ranks_.resize(host_of_.size());
  std::vector<int> next(first_.begin(), first_.end() - 1);
  for (std::size_t rank = 0; rank < host_of_.size(); ++rank) {
    ranks_[static_cast<std::size_t>(next[static_cast<std::size_t>(host_of_[rank])]++)] = static_cast<int>(rank);
  }
}

HostMap HostMap::one_host(int size) { return HostMap(std::vector<int>(static_cast<std::size_t>(size), 0)); }

HostMap HostMap::from_identities(const std::vector<std::string>& identities) {
  std::unordered_map<std::string, int> numbers;
  std::vector<int> host_of;
  host_of.reserve(identities.size());
  for (const std::string& identity : identities) {
    host_of.push_back(numbers.try_emplace(identity, static_cast<int>(numbers.size())).first->second);
  }
  return HostMap(std::move(host_of));
}

std::span<const int> HostMap::ranks_on(int host) const {
  const auto at = static_cast<std::size_t>(host);
  return std::span<const int>(ranks_).subspan(static_cast<std::size_t>(first_[at]),
                                              static_cast<std::size_t>(first_[at + 1] - first_[at]));
}

bool HostMap::is_homogeneous() const {
  const auto ranks = ranks_on(0).size();
  for (int host = 1; host < hosts(); ++host) {
    if (ranks_on(host).size() != ranks) return false;
  }
  return true;
}

bool HostMap::is_host_by_host() const { return std::is_sorted(host_of_.begin(), host_of_.end()); }

Bytes HostMap::encode() const {
  const std::vector<Block> blocks = blocks_of(host_of_);
  ByteWriter out;
  out.put(static_cast<std::uint32_t>(blocks.size()));
  for (const Block& block : blocks) {
    out.put(block.first_host);
    out.put(block.hosts);
    out.put(block.ranks);
  }
  return out.take();
}

Result<HostMap> HostMap::decode(ByteSpan bytes, int size) {
  ByteReader in(bytes);
  const std::uint32_t count = in.get_count(static_cast<std::size_t>(size), kBlockSize);
  std::vector<int> host_of;
  host_of.reserve(static_cast<std::size_t>(size));
  int hosts = 0;
  for (std::uint32_t i = 0; i < count && !in.failed(); ++i) {
    const auto first = in.get<std::uint32_t>();
    const int many = in.get<std::uint16_t>();
    const int ranks = in.get<std::uint16_t>();
    const auto left = static_cast<std::int64_t>(size) - static_cast<std::int64_t>(host_of.size());
    if (first > static_cast<std::uint32_t>(hosts) || many == 0 || ranks == 0 || std::int64_t{many} * ranks > left) {
      in.fail("block " + std::to_string(i) + ": " + std::to_string(many) + " hosts with " + std::to_string(ranks) +
              " ranks from host " + std::to_string(first) + " on, after " + std::to_string(hosts) + " hosts and with " +
              std::to_string(left) + " ranks left");
      break;
    }
    for (int host = static_cast<int>(first); host < static_cast<int>(first) + many; ++host) {
      host_of.insert(host_of.end(), static_cast<std::size_t>(ranks), host);
    }
    hosts = std::max(hosts, static_cast<int>(first) + many);
  }
  if (!in.failed() && host_of.size() != static_cast<std::size_t>(size)) {
    in.fail(std::to_string(host_of.size()) + " ranks, expected " + std::to_string(size));
  }
  HVD_RETURN_IF_ERROR(in.finish("map of hosts"));
  return HostMap(std::move(host_of));
}

}  // namespace hvd::topology
