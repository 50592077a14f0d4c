#include "runtime/engine/host_memory.h"

#include <unistd.h>

#include <utility>

#include "runtime/base/log.h"

namespace hvd::engine {

using collectives::SharedMemory;

HostMemory::HostMemory(const config::RuntimeConfig& config) {
  if (!config.shared_memory) return;
  auto socket = collectives::HandOverSocket::open();
  if (socket.is_ok()) {
    socket_ = std::move(socket).value();
  } else {
    HVD_LOG(kWarning, "this rank shares no memory with others of its host: ", socket.status().message());
  }
}

Result<SharedMemory> HostMemory::share(const topology::Membership& membership, const crypto::Secret& secret,
                                       StoreRows& rows, Deadline deadline, const std::stop_token& stop) {
  const auto socket = std::exchange(socket_, std::nullopt);
  const auto beside = membership.hosts().ranks_on(membership.hosts().host_of(membership.rank()));
  const bool leads = beside.front() == membership.rank();
  // Both are the same for all ranks of the host.
  if (beside.size() > static_cast<std::size_t>(collectives::ShmSegment::kMaxMembers)) {
    return SharedMemory{nullptr, std::to_string(beside.size()) + " ranks on one host"};
  }
  if (const auto without = membership.capabilities().first_without(topology::Capability::kSharedMemory, beside)) {
    return SharedMemory{nullptr, "rank " + std::to_string(*without) + " has none (HOROVOD_SHM=0, or its system)"};
  }
  if (beside.size() == 1) return SharedMemory{nullptr, "no other rank is on this host"};

  HVD_ASSIGN_OR_RETURN(const Pipe wake, make_pipe());
  const std::stop_callback end_wait(stop, [&] { (void)write_all(wake.write_end.get(), "", 1); });
  const collectives::HandOverOptions options{membership.rank(),
                                             {beside.begin(), beside.end()},
                                             secret.derive("shm", membership.epoch()),
                                             deadline,
                                             wake.read_end.get()};
  Result<SharedMemory> memory = SharedMemory{};
  if (leads) {
    memory = collectives::hand_over(*socket, options);
  } else {
    HVD_ASSIGN_OR_RETURN(const topology::RankRow leader, rows.row(beside.front(), deadline));
    memory = collectives::take_over(leader.memory_socket, options);
  }
  HVD_RETURN_IF_ERROR(memory.status());
  if (memory.value().segment == nullptr && leads) {
    HVD_LOG(kWarning, "the ranks of this host share no memory: ", memory.value().why_not);
  }
  return memory;
}

}  // namespace hvd::engine
