#pragma once

#include <cstdint>
#include <utility>

#include "horovod/types.h"
#include "runtime/base/check.h"
#include "runtime/topology/host_map.h"

namespace hvd::topology {

// Who this process is among the ranks of one epoch, and who shares a host: made once, when the rank has joined.
// Immutable. The numbers are this rank's own. The hosts are the same on every rank: whatever ranks must agree on
// follows from them.
class Membership {
 public:
  // `numbers` but for is_homogeneous, which follows from the hosts. Requires: there are numbers.size ranks on the
  // hosts.
  Membership(JobTopology numbers, HostMap hosts) : numbers_(numbers), hosts_(std::move(hosts)) {
    HVD_CHECK(hosts_.size() == numbers_.size, "a map of the hosts of all ranks");
    numbers_.is_homogeneous = hosts_.is_homogeneous();
  }

  int rank() const { return numbers_.rank; }
  int size() const { return numbers_.size; }
  std::uint64_t epoch() const { return numbers_.epoch; }
  // As users see them.
  const JobTopology& numbers() const { return numbers_; }
  const HostMap& hosts() const { return hosts_; }

 private:
  JobTopology numbers_;
  HostMap hosts_;
};

}  // namespace hvd::topology
