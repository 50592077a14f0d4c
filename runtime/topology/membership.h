#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "horovod/types.h"
#include "runtime/base/bytes.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/topology/capabilities.h"

namespace hvd::topology {

// Which ranks share a host, in one epoch: made once from the rows of all ranks and the same value on every
// rank, so that whatever follows from it is the same too. Whoever wants to know how ranks lie on hosts asks this, not
// local and cross sizes, which differ between ranks where hosts do. Immutable. Hosts are numbered in the order of their
// first ranks; unequal hosts are normal.
class HostMap {
 public:
  static HostMap one_host(int size);
  // `identities[r]`: what rank r says its host is; ranks with equal texts share one. Requires: at least one rank.
  static HostMap from_identities(const std::vector<std::string>& identities);

  int size() const { return static_cast<int>(host_of_.size()); }  // ranks
  int hosts() const { return static_cast<int>(first_.size()) - 1; }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  std::span<const int> ranks_on(int host) const;  // ascending
  // Equally many ranks on each host.
  bool is_homogeneous() const;
  // Ranks are numbered host by host: those of each host are in a row.
  bool is_host_by_host() const;

  // A few bytes where hosts are equal, whatever their number (docs/design/job-bootstrap.md).
  Bytes encode() const;
  // Fails unless the bytes are a map of `size` ranks.
  static Result<HostMap> decode(ByteSpan bytes, int size);

  bool operator==(const HostMap& other) const { return host_of_ == other.host_of_; }

 private:
  explicit HostMap(std::vector<int> host_of);  // Requires: numbered in the order of first ranks

  std::vector<int> host_of_;  // by rank
  std::vector<int> ranks_;    // by host, then by rank
  std::vector<int> first_;    // by host: where its ranks begin in ranks_; one more at the end
};

// Who this process is among the ranks of one epoch, who shares a host, and what each is able to do: made once, when the
// rank has joined. Immutable. The numbers are this rank's own. Hosts and capabilities are the same on every rank:
// whatever ranks must agree on follows from them.
class Membership {
 public:
  // `numbers` but for is_homogeneous, which follows from the hosts. Requires: hosts and capabilities are of
  // numbers.size ranks.
  Membership(JobTopology numbers, HostMap hosts, CapabilityMap capabilities)
      : numbers_(numbers), hosts_(std::move(hosts)), capabilities_(std::move(capabilities)) {
    HVD_CHECK(hosts_.size() == numbers_.size, "a map of the hosts of all ranks");
    HVD_CHECK(capabilities_.size() == numbers_.size, "the capabilities of all ranks");
    numbers_.is_homogeneous = hosts_.is_homogeneous();
  }

  int rank() const { return numbers_.rank; }
  int size() const { return numbers_.size; }
  std::uint64_t epoch() const { return numbers_.epoch; }
  // As users see them.
  const JobTopology& numbers() const { return numbers_; }
  const HostMap& hosts() const { return hosts_; }
  const CapabilityMap& capabilities() const { return capabilities_; }

 private:
  JobTopology numbers_;
  HostMap hosts_;
  CapabilityMap capabilities_;
};

}  // namespace hvd::topology
