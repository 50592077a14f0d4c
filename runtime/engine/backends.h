#pragma once

#include <memory>

#include "runtime/base/status.h"
#include "runtime/collectives/backend_list.h"
#include "runtime/collectives/cuda/devices.h"
#include "runtime/collectives/shm/exchange_slots.h"
#include "runtime/collectives/shm/shm_backend.h"
#include "runtime/config/runtime_config.h"
#include "runtime/topology/membership.h"
#include "runtime/topology/process_set.h"
#include "runtime/transport/fabric.h"

namespace hvd::engine {

// The backends of a process set of several ranks, in order of preference: the only place that names them. Which ones,
// and how they are set up, must follow from what all ranks agreed on when they joined (the options in their rows, the
// host map, the capabilities of all, the memory of a host) and from the set, or its members would choose differently.
// `fabric` outlives them.
std::shared_ptr<collectives::BackendList> make_backends(const config::RuntimeConfig& config,
                                                        const topology::ProcessSet& set,
                                                        const topology::Membership& membership,
                                                        const collectives::SharedMemory& memory,
                                                        transport::Fabric& fabric,
                                                        const std::shared_ptr<collectives::cuda::Devices>& devices);
// Where the members of a set of several ranks exchange small tensors; null: nowhere. The same on all members, as above.
std::shared_ptr<collectives::ExchangeSlots> make_slots(const config::RuntimeConfig& config,
                                                       const topology::ProcessSet& set,
                                                       const topology::Membership& membership,
                                                       const collectives::SharedMemory& memory);
// Those of a set of one rank.
std::shared_ptr<collectives::BackendList> make_local_backends(
    const config::RuntimeConfig& config, const topology::ProcessSet& set,
    const std::shared_ptr<collectives::cuda::Devices>& devices);

// Logs when HOROVOD_HIERARCHICAL_ALLREDUCE is set and does nothing for Adasum, as ranks are not numbered host by host.
// Other allreduces do not mind.
void warn_of_flat_adasum(const config::RuntimeConfig& config, const topology::HostMap& hosts);

}  // namespace hvd::engine
