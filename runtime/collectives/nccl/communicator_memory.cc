// A communicator's memory: what NCCL allocates and reaches without copies of its own.
#include <algorithm>
#include <thread>

#include "runtime/base/log.h"
#include "runtime/collectives/nccl/communicator.h"

namespace hvd::collectives::nccl {

namespace {

constexpr Millis kRegisterLimit{10000};  // less than members wait for each other's word on it
constexpr Millis kIdleLimit{500};        // after an abort, as long as others wait for the GPU then

}  // namespace

void* Communicator::allocate(std::size_t bytes) {
  const Calls& nccl = library_->calls();
  if (nccl.allocate == nullptr || nccl.register_memory == nullptr) return nullptr;
  const cuda::Device::Scope scope(*stream_->device());
  void* memory = nullptr;
  const Status status = library_->check(nccl.allocate(&memory, bytes), cuda::of_bytes("ncclMemAlloc", bytes), nullptr);
  if (status.is_ok()) {
    comm_->pieces.push_back({memory});
    return memory;
  }
  HVD_LOG(kWarning, "lists are packed in memory that NCCL does not know: ", status.message());
  return nullptr;
}

// Windows where NCCL has them: on a machine whose GPUs do not reach each other it makes none, and says nothing. The
// place for the window is NCCL's to write until the communicator has settled.
Status Communicator::begin_registration(void* memory, std::size_t bytes) {
  const auto piece = std::ranges::find(comm_->pieces, memory, &Comm::Piece::memory);
  const Calls& nccl = library_->calls();
  const MutexLock lock(comm_->mutex);
  HVD_RETURN_IF_ERROR(check_alive("the registration of memory"));
  const cuda::Device::Scope scope(*stream_->device());
  if (nccl.register_window == nullptr) {
    return library_->check(nccl.register_memory(comm_->handle, memory, bytes, &piece->registration), "ncclCommRegister",
                           comm_->handle);
  }
  return library_->check(nccl.register_window(comm_->handle, memory, bytes, &piece->window, kSymmetricWindow),
                         "ncclCommWindowRegister", comm_->handle);
}

Status Communicator::end_registration(void* memory, std::size_t bytes) {
  const auto piece = std::ranges::find(comm_->pieces, memory, &Comm::Piece::memory);
  const Calls& nccl = library_->calls();
  const bool makes_windows = nccl.register_window != nullptr;
  HVD_RETURN_IF_ERROR(
      settle(makes_windows ? "ncclCommWindowRegister" : "ncclCommRegister", Deadline::after(kRegisterLimit)));
  if (!makes_windows || piece->window != nullptr) return Status::ok();
  const MutexLock lock(comm_->mutex);
  HVD_RETURN_IF_ERROR(check_alive("the registration of memory"));
  const cuda::Device::Scope scope(*stream_->device());
  return library_->check(nccl.register_memory(comm_->handle, memory, bytes, &piece->registration), "ncclCommRegister",
                         comm_->handle);
}

// False: NCCL still has some.
bool Communicator::end_registrations() {
  const Calls& nccl = library_->calls();
  const cuda::Device::Scope scope(*stream_->device());
  Status status;
  for (const Comm::Piece& piece : comm_->pieces) {
    if (status.is_ok() && piece.window != nullptr) {
      status =
          library_->check(nccl.deregister_window(comm_->handle, piece.window), "ncclCommWindowDeregister", nullptr);
    }
    if (status.is_ok() && piece.registration != nullptr) {
      status =
          library_->check(nccl.deregister_memory(comm_->handle, piece.registration), "ncclCommDeregister", nullptr);
    }
  }
  if (!status.is_ok()) HVD_LOG(kWarning, "a communicator is aborted at its end: ", status.message());
  return status.is_ok();
}

// NCCL does not wait for the GPU when it takes memory back: what may still be in use after an abort is kept for good.
void Communicator::free_all(bool is_idle) {
  if (comm_->pieces.empty()) return;
  const cuda::Device::Scope scope(*stream_->device());
  const auto end = stream_->record();
  const Deadline deadline = Deadline::after(kIdleLimit);
  while (!is_idle && end.is_ok() && !deadline.expired()) {
    const Result<bool> come = end.value()->has_come();
    if (!come.is_ok()) return;
    is_idle = come.value();
    std::this_thread::yield();
  }
  for (const Comm::Piece& piece : comm_->pieces) {
    if (is_idle) library_->calls().free(piece.memory);
  }
}

}  // namespace hvd::collectives::nccl
