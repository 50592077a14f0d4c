#include "runtime/collectives/host_groups.h"

#include <algorithm>
#include <numeric>

namespace hvd::collectives {
namespace {

constexpr std::int64_t kWholeLines = 64;  // elements of any type

// Of `count` elements.
struct Range {
  std::int64_t begin;
  std::int64_t count;
};
Range range_of(std::int64_t count, std::int64_t piece, std::int64_t pieces) {
  const std::int64_t most = ((count + pieces - 1) / pieces + kWholeLines - 1) / kWholeLines * kWholeLines;
  const std::int64_t begin = std::min(count, piece * most);
  return {begin, std::min(most, count - begin)};
}

}  // namespace

std::vector<std::int64_t> HostGroups::slices_of(DataType dtype, std::int64_t count) const {
  const auto line = static_cast<std::int64_t>(kCacheLine / element_size(dtype));
  const std::int64_t even = (count + slices - 1) / slices;
  const std::int64_t slice = (even + line - 1) / line * line;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(local_size()), 0);
  for (int member = 0; member < slices; ++member) {
    counts[static_cast<std::size_t>(member)] = std::clamp<std::int64_t>(count - member * slice, 0, slice);
  }
  return counts;
}

std::vector<int> HostGroups::hosts_of_group(int slice) const {
  std::vector<int> order(hosts.size());
  std::iota(order.begin(), order.end(), 0);
  const auto owner = [&](int one) { return hosts[static_cast<std::size_t>(one)][static_cast<std::size_t>(slice)]; };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return owner(a) < owner(b); });
  return order;
}

PartsLayout::PartsLayout(const HostGroups& groups, const std::vector<std::int64_t>& counts, std::int64_t piece,
                         std::int64_t pieces) {
  std::vector<std::int64_t> plain(counts.size(), 0);
  std::partial_sum(counts.begin(), counts.end() - 1, plain.begin() + 1);
  const auto range = [&](int rank) { return range_of(counts[static_cast<std::size_t>(rank)], piece, pieces); };
  const auto& locals = groups.hosts[static_cast<std::size_t>(groups.host)];
  slices.resize(locals.size(), 0);
  of_host.resize(locals.size(), 0);
  for (int slice = 0; slice < groups.slices; ++slice) {
    const auto s = static_cast<std::size_t>(slice);
    by_host.emplace_back();
    for (const int host : groups.hosts_of_group(slice)) {
      std::int64_t sum = 0;
      const auto& members = groups.hosts[static_cast<std::size_t>(host)];
      for (auto i = s; i < members.size(); i += static_cast<std::size_t>(groups.slices)) {
        const Range own = range(members[i]);
        parts.push_back(
            {members[i], host, slice, plain[static_cast<std::size_t>(members[i])] + own.begin, total + sum, own.count});
        sum += own.count;
      }
      by_host.back().push_back(sum);
      if (host == groups.host) of_host[s] = sum;
      slices[s] += sum;
      total += sum;
    }
  }
  for (const int rank : locals) own_counts.push_back(range(rank).count);
  own_begin = range(locals[static_cast<std::size_t>(groups.local_rank)]).begin;
}

std::vector<PartsLayout> PartsLayout::cut(const HostGroups& groups, const std::vector<std::int64_t>& counts,
                                          std::int64_t pieces) {
  std::vector<PartsLayout> all;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    PartsLayout layout(groups, counts, piece, pieces);
    if (layout.total > 0) all.push_back(std::move(layout));
  }
  return all;
}

}  // namespace hvd::collectives
