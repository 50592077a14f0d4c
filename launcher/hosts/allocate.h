#pragma once

#include <optional>
#include <vector>

#include "launcher/hosts/host_spec.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

inline constexpr int kMaxRanks = 1 << 20;

// Places exactly `num_proc` ranks: hosts are filled in the order listed, ranks are consecutive on a host. Hosts that
// get no rank are left out. Too few slots is an error naming both numbers and the hosts. Pure.
Result<std::vector<HostAssignment>> allocate(const std::vector<HostSpec>& hosts, int num_proc);

// The general form: as many ranks as there are slots, at most `max_num_proc`; fewer than `min_num_proc` is an error.
Result<std::vector<HostAssignment>> get_host_assignments(const std::vector<HostSpec>& hosts, int min_num_proc,
                                                         std::optional<int> max_num_proc);

}  // namespace hvd::launcher
