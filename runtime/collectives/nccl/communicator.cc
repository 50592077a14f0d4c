#include "runtime/collectives/nccl/communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/collectives/memory.h"

namespace hvd::collectives::nccl {

namespace {

constexpr Millis kEndLimit{5000};

std::optional<Type> type_of(DataType dtype) {
  switch (dtype) {
    case DataType::kUint8: return Type::kUint8;
    case DataType::kInt8: return Type::kInt8;
    case DataType::kInt32: return Type::kInt32;
    case DataType::kInt64: return Type::kInt64;
    case DataType::kFloat16: return Type::kFloat16;
    case DataType::kFloat32: return Type::kFloat32;
    case DataType::kFloat64: return Type::kFloat64;
    case DataType::kBfloat16: return Type::kBfloat16;
    case DataType::kFloat8E4m3fn: return Type::kFloat8E4m3;
    case DataType::kFloat8E5m2: return Type::kFloat8E5m2;
    default: return std::nullopt;  // int16, uint16 and bool are no numbers to NCCL
  }
}

// Not floats of 8 bits: a factor of so few digits is not what was asked for.
bool takes_factors(DataType dtype) {
  return dtype == DataType::kFloat16 || dtype == DataType::kBfloat16 || dtype == DataType::kFloat32 ||
         dtype == DataType::kFloat64;
}

Reduction base_reduction(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin: return Reduction::kMin;
    case ReduceOp::kMax: return Reduction::kMax;
    case ReduceOp::kProduct: return Reduction::kProduct;
    default: return Reduction::kSum;
  }
}

bool all_equal(const std::vector<std::int64_t>& counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

// The factor in the type of the elements.
std::array<std::byte, 8> scalar_of(DataType dtype, double factor) {
  std::array<std::byte, 8> one{};
  const std::uint16_t half = dtype == DataType::kBfloat16 ? 0x3F80 : 0x3C00;
  const float single = 1.0F;
  const double full = 1.0;
  if (dtype == DataType::kFloat64) {
    std::memcpy(one.data(), &full, sizeof full);
  } else if (dtype == DataType::kFloat32) {
    std::memcpy(one.data(), &single, sizeof single);
  } else {
    std::memcpy(one.data(), &half, sizeof half);
  }
  host_memory().scale_copy(dtype, one.data(), one.data(), 1, factor);
  return one;
}

}  // namespace

bool scales(const CollectiveCall& call) {
  return !call.scaling.changes_anything() || (call.reduce_op == ReduceOp::kSum && takes_factors(call.dtype));
}

std::string why_not(const CollectiveCall& call, bool can_scale) {
  const bool reduces = call.op == OpType::kAllreduce || call.op == OpType::kReducescatter;
  if (call.op == OpType::kAdasum) return "NCCL has no Adasum";
  if (!reduces) return "";
  if (!type_of(call.dtype)) return "NCCL does not reduce " + std::string(data_type_name(call.dtype));
  if (can_scale || scales(call)) return "";
  const std::string kernels = ", and a rank has no kernels for that";
  if (call.reduce_op != ReduceOp::kSum) return "NCCL scales sums only" + kernels;
  return "NCCL does not scale " + std::string(data_type_name(call.dtype)) + kernels;
}

Result<std::shared_ptr<Communicator>> Communicator::begin(std::shared_ptr<const Library> library,
                                                          std::shared_ptr<cuda::Stream> stream,
                                                          std::vector<UniqueId> ids, const Place& place) {
  std::shared_ptr<Communicator> made(new Communicator(std::move(library), std::move(stream), place));
  Config config;
  const cuda::Device::Scope scope(*made->stream_->device());
  const Calls& nccl = made->library_->calls();
  void** const handle = &made->comm_->handle;
  const int result = ids.size() == 1 ? nccl.init(handle, place.size, ids.front(), place.rank, &config)
                                     : nccl.init_scalable(handle, place.size, place.rank, static_cast<int>(ids.size()),
                                                          ids.data(), &config);
  HVD_RETURN_IF_ERROR(
      made->library_->check(result, ids.size() == 1 ? "ncclCommInitRankConfig" : "ncclCommInitRankScalable", nullptr));
  return made;
}

Status Communicator::check_alive(const std::string& what) const {
  return comm_->handle != nullptr && !comm_->is_aborted() ? Status::ok() : Status::aborted(what + ": aborted");
}

Status Communicator::settle(const std::string& what, Deadline deadline) {
  for (;;) {
    int state = kSuccess;
    {
      const MutexLock lock(comm_->mutex);
      HVD_RETURN_IF_ERROR(check_alive(what));
      const cuda::Device::Scope scope(*stream_->device());
      HVD_RETURN_IF_ERROR(library_->check(library_->calls().async_error(comm_->handle, &state), "ncclCommGetAsyncError",
                                          comm_->handle));
      if (state != kInProgress) return library_->check(state, what, comm_->handle);
    }
    if (deadline.expired()) return Status::timeout(what + ": NCCL did not come to an end in time");
    std::this_thread::yield();
  }
}

Communicator::~Communicator() {
  if (!comm_->is_aborted() && comm_->handle != nullptr) end();
  const bool is_aborted = comm_->is_aborted();
  if (!is_aborted || comm_->wait_for_abort()) free_all(!is_aborted);
}

void Communicator::end() {
  if (!end_registrations()) return comm_->abort();
  int result = kSuccess;
  {
    const cuda::Device::Scope scope(*stream_->device());
    result = library_->calls().finalize(comm_->handle);
  }
  const bool ended =
      (result == kSuccess || result == kInProgress) && settle("ncclCommFinalize", Deadline::after(kEndLimit)).is_ok();
  if (!ended) return comm_->abort();
  const cuda::Device::Scope scope(*stream_->device());
  library_->calls().destroy(comm_->handle);
}

Status Communicator::trouble() {
  // Who asks waits for nobody: the lane may be in a call. It is asked again soon.
  if (!comm_->mutex.try_lock()) return Status::ok();
  int state = kSuccess;
  Status status;
  if (check_alive("").is_ok()) {
    status =
        library_->check(library_->calls().async_error(comm_->handle, &state), "ncclCommGetAsyncError", comm_->handle);
    if (status.is_ok()) status = library_->check(state, "a collective on GPUs", comm_->handle);
  }
  comm_->mutex.unlock();
  return status;
}

Status Communicator::start(const CollectiveCall& call) {
  {
    const MutexLock lock(comm_->mutex);
    HVD_RETURN_IF_ERROR(check_alive(std::string(op_type_name(call.op))));
    const cuda::Device::Scope scope(*stream_->device());
    HVD_RETURN_IF_ERROR(library_->check(issue(call), std::string(op_type_name(call.op)), comm_->handle));
  }
  is_unsettled_ = true;
  HVD_RETURN_IF_ERROR(settle(std::string(op_type_name(call.op)), Deadline::after(place_.call_limit)));
  is_unsettled_ = false;
  const MutexLock lock(comm_->mutex);
  const int own = std::exchange(own_reduction_, kNone);
  if (own != kNone && comm_->handle != nullptr) {
    HVD_RETURN_IF_ERROR(
        library_->check(library_->calls().end_reduction(own, comm_->handle), "ncclRedOpDestroy", comm_->handle));
  }
  return Status::ok();
}

void Communicator::abort_unsettled(const cuda::EventPtr& end) {
  if (!is_unsettled_) return;
  comm_->abort();
  comm_->hold_until_over(end);
}

int Communicator::issue(const CollectiveCall& call) {
  const Calls& nccl = library_->calls();
  void* const stream = stream_->handle();
  switch (call.op) {
    case OpType::kAllreduce:
    case OpType::kReducescatter: {
      int reduction = 0;
      if (const int result = reduction_of(call, reduction); result != kSuccess) return result;
      return reduce_with(call, reduction);
    }
    case OpType::kBroadcast: {
      const void* const input = call.input != nullptr ? call.input : call.output;
      const std::size_t bytes = static_cast<std::size_t>(call.count) * element_size(call.dtype);
      return nccl.broadcast(input, call.output, bytes, Type::kInt8, call.root, comm_->handle, stream);
    }
    case OpType::kAllgather: return gather(call);
    default: return exchange(call);
  }
}

// A factor before and one after a sum are one factor before it.
int Communicator::reduction_of(const CollectiveCall& call, int& reduction) {
  reduction = static_cast<int>(base_reduction(call.reduce_op));
  if (!call.scaling.changes_anything()) return kSuccess;
  const double factor = call.scaling.before * call.scaling.after / call.scaling.divisor;
  if (factor == 1.0 / place_.size) {
    reduction = static_cast<int>(Reduction::kAverage);
    return kSuccess;
  }
  std::array<std::byte, 8> scalar = scalar_of(call.dtype, factor);
  const int result =
      library_->calls().make_pre_mul_sum(&reduction, scalar.data(), *type_of(call.dtype), kScalarOnHost, comm_->handle);
  if (result == kSuccess) own_reduction_ = reduction;
  return result;
}

int Communicator::reduce_with(const CollectiveCall& call, int reduction) {
  const Calls& nccl = library_->calls();
  const Type type = *type_of(call.dtype);
  const void* const input = call.input != nullptr ? call.input : call.output;
  if (call.op == OpType::kAllreduce) {
    return nccl.all_reduce(input, call.output, static_cast<std::size_t>(call.count), type, reduction, comm_->handle,
                           stream_->handle());
  }
  if (!all_equal(call.rank_counts)) return scatter_parts(call, reduction);
  return nccl.reduce_scatter(input, call.output, static_cast<std::size_t>(call.rank_counts.front()), type, reduction,
                             comm_->handle, stream_->handle());
}

int Communicator::scatter_parts(const CollectiveCall& call, int reduction) {
  const Calls& nccl = library_->calls();
  const auto* part = static_cast<const std::byte*>(call.input);
  int result = nccl.group_start();
  for (int rank = 0; rank < place_.size && result == kSuccess; ++rank) {
    const auto n = static_cast<std::size_t>(call.rank_counts[static_cast<std::size_t>(rank)]);
    void* const output = rank == place_.rank ? call.output : nullptr;
    if (n > 0) {
      result = nccl.reduce(part, output, n, *type_of(call.dtype), reduction, rank, comm_->handle, stream_->handle());
    }
    part += n * element_size(call.dtype);
  }
  const int ended = nccl.group_end();
  return result == kSuccess ? ended : result;
}

int Communicator::gather(const CollectiveCall& call) {
  const Calls& nccl = library_->calls();
  const std::size_t element = element_size(call.dtype);
  if (all_equal(call.rank_counts)) {
    return nccl.all_gather(call.input, call.output, static_cast<std::size_t>(call.count) * element, Type::kInt8,
                           comm_->handle, stream_->handle());
  }
  auto* part = static_cast<std::byte*>(call.output);
  int result = nccl.group_start();
  for (int rank = 0; rank < place_.size && result == kSuccess; ++rank) {
    const std::size_t bytes = static_cast<std::size_t>(call.rank_counts[static_cast<std::size_t>(rank)]) * element;
    const void* const input = rank == place_.rank ? call.input : part;
    if (bytes > 0) result = nccl.broadcast(input, part, bytes, Type::kInt8, rank, comm_->handle, stream_->handle());
    part += bytes;
  }
  const int ended = nccl.group_end();
  return result == kSuccess ? ended : result;
}

int Communicator::exchange(const CollectiveCall& call) {
  const Calls& nccl = library_->calls();
  const std::size_t element = element_size(call.dtype);
  const auto* from = static_cast<const std::byte*>(call.input);
  auto* to = static_cast<std::byte*>(call.output);
  int result = nccl.group_start();
  for (int rank = 0; rank < place_.size && result == kSuccess; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const std::size_t sent = static_cast<std::size_t>(call.rank_counts[at]) * element;
    const std::size_t received = static_cast<std::size_t>(call.receive_counts[at]) * element;
    if (sent > 0) result = nccl.send(from, sent, Type::kInt8, rank, comm_->handle, stream_->handle());
    if (received > 0 && result == kSuccess) {
      result = nccl.receive(to, received, Type::kInt8, rank, comm_->handle, stream_->handle());
    }
    from += sent;
    to += received;
  }
  const int ended = nccl.group_end();
  return result == kSuccess ? ended : result;
}

}  // namespace hvd::collectives::nccl
