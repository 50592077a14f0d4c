#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/collectives/backend_list.h"

namespace hvd::collectives {

// A process set on several hosts, as one of its members sees it. Members are numbered by their places on their host;
// the first `slices` of each host own a slice of every tensor each, and those of all hosts that own the same one are a
// group.
struct HostGroups {
  // Which calls are taken; the same on all members.
  struct Limit {
    std::string why_not{};       // not empty: none
    std::uint64_t smallest = 0;  // bytes
  };

  int host = 0;                           // this member's place in `hosts`
  std::vector<std::vector<int>> hosts{};  // set ranks by host, ascending in each
  int slices = 1;                         // as many as the host with the fewest members has
  int local_rank = 0;
  std::shared_ptr<BackendList> local{};   // of the members on this host; null when there is one
  std::shared_ptr<BackendList> across{};  // of the group, by set rank; null when this member owns no slice
  std::string why_not{};                  // not empty: they have no such groups, and nothing else counts
  Limit reductions{};                     // allreduce, reducescatter
  Limit allgathers{};
  Limit broadcasts{};
  std::uint64_t owner_bytes = 512U << 10;  // each owner on each host has at least so much of a piece of a call

  int local_size() const { return static_cast<int>(hosts[static_cast<std::size_t>(host)].size()); }
  bool owns_slice() const { return local_rank < slices; }
  // The elements of each local member's slice of a tensor that may be cut anywhere: whole cache lines but for the last;
  // none for members without a slice.
  std::vector<std::int64_t> slices_of(DataType dtype, std::int64_t count) const;
  // The hosts in the order of their members in the group of this slice.
  std::vector<int> hosts_of_group(int slice) const;
};

// How a tensor that is made of a part of each set rank, or the same piece of all these parts, lies in packed memory:
// slice by slice, in each host by host in the order of the group, of each host the parts of its members number slice,
// slice + slices, ... A value.
struct PartsLayout {
  struct Part {
    int set_rank = 0;
    int host = 0;
    int slice = 0;
    std::int64_t plain = 0;   // where it lies in order of set ranks
    std::int64_t packed = 0;  // and here
    std::int64_t count = 0;
  };

  // Piece `piece` of `pieces` of a tensor with parts of these counts. Pieces of a part are about equal.
  PartsLayout(const HostGroups& groups, const std::vector<std::int64_t>& counts, std::int64_t piece = 0,
              std::int64_t pieces = 1);
  // The pieces of such a tensor that have anything.
  static std::vector<PartsLayout> cut(const HostGroups& groups, const std::vector<std::int64_t>& counts,
                                      std::int64_t pieces);

  std::vector<Part> parts{};
  std::int64_t total = 0;
  std::vector<std::int64_t> slices{};                // elements; zeros for members of this host without a slice
  std::vector<std::vector<std::int64_t>> by_host{};  // elements of each slice, in the order of its group
  std::vector<std::int64_t> of_host{};               // elements of this host's part of each slice, for each member
  std::vector<std::int64_t> own_counts{};            // elements of the part of each of this host's members
  std::int64_t own_begin = 0;                        // where in its part the piece of this member begins
};

}  // namespace hvd::collectives
