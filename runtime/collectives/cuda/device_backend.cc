#include "runtime/collectives/cuda/device_backend.h"

#include <utility>

namespace hvd::collectives::cuda {

// Before an alltoall the sizes are exchanged in host memory, and they stay there.
void DeviceBackend::start(const CollectiveCall& call, Completion done) {
  if (call.memory == MemoryKind::kHost) return done(staged_.run_on_host(call));
  staged_.start(call, std::move(done));
}

}  // namespace hvd::collectives::cuda
