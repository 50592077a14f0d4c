// Allreduces host by host: NCCL inside a host, our transport between hosts.
#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/collectives/nccl/device_group.h"

namespace hvd::collectives::nccl {

namespace {

// Of each slice, so that what a collective between hosts costs besides its bytes does not count.
constexpr std::size_t kSliceBytes = std::size_t{4} << 20;

}  // namespace

// A part of the tensor: its slices, of which this rank brings its own to the other hosts.
struct DeviceGroup::HostPiece {
  std::byte* memory = nullptr;  // on the GPU
  std::vector<std::int64_t> slices{};
  std::int64_t own = 0;  // elements
  std::byte* own_slice = nullptr;
  std::size_t pinned_offset = 0;
  std::size_t own_bytes = 0;
  cuda::EventPtr is_out{};  // the own slice has come to the host
};

// Each slice is reduced to its owner inside each host by NCCL, by its owners between hosts through pinned memory, and
// gathered inside each host by NCCL. All pieces are put into the stream at once: while one is between hosts, those
// after it are reduced and come out, and the one before it is gathered. The lane waits for the hosts, as it does in
// other collectives of the host.
Status DeviceGroup::reduce_by_host(const CollectiveCall& call) {
  if (call.input != nullptr && call.input != call.output) {
    const std::size_t bytes = static_cast<std::size_t>(call.count) * element_size(call.dtype);
    HVD_RETURN_IF_ERROR(stream_->copy(call.output, call.input, bytes));
  }
  std::vector<HostPiece> pieces = host_pieces(call);
  const std::size_t pinned_bytes = pieces.empty() ? 0 : pieces.back().pinned_offset + pieces.back().own_bytes;
  HVD_ASSIGN_OR_RETURN(std::byte* const pinned, stream_->pinned_scratch(pinned_bytes));
  for (HostPiece& piece : pieces) HVD_RETURN_IF_ERROR(scatter_piece(call, piece, pinned));
  for (const HostPiece& piece : pieces) HVD_RETURN_IF_ERROR(finish_piece(call, piece, pinned));
  return Status::ok();
}

std::vector<DeviceGroup::HostPiece> DeviceGroup::host_pieces(const CollectiveCall& call) const {
  const HostGroups& groups = options_.by_host->groups();
  const std::size_t element = element_size(call.dtype);
  const auto most = static_cast<std::int64_t>(kSliceBytes / element) * groups.slices;
  std::vector<HostPiece> pieces;
  std::size_t pinned = 0;
  for (std::int64_t begin = 0; begin < call.count; begin += most) {
    HostPiece piece;
    piece.memory = static_cast<std::byte*>(call.output) + static_cast<std::size_t>(begin) * element;
    piece.slices = options_.by_host->slices_of(call.dtype, std::min(most, call.count - begin));
    const auto own = piece.slices.begin() + groups.local_rank;
    piece.own = *own;
    piece.own_slice =
        piece.memory + static_cast<std::size_t>(std::accumulate(piece.slices.begin(), own, std::int64_t{0})) * element;
    piece.own_bytes = static_cast<std::size_t>(piece.own) * element;
    piece.pinned_offset = pinned;
    pinned += piece.own_bytes;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

Status DeviceGroup::scatter_piece(const CollectiveCall& call, HostPiece& piece, std::byte* pinned) {
  CollectiveCall scatter;
  scatter.op = OpType::kReducescatter;
  scatter.dtype = call.dtype;
  scatter.reduce_op = call.reduce_op;
  scatter.scaling = {.before = call.scaling.before};
  scatter.input = piece.memory;
  scatter.output = piece.own_slice;
  scatter.rank_counts = piece.slices;
  HVD_RETURN_IF_ERROR(of_host_->start(scatter));
  if (piece.own == 0) return Status::ok();
  HVD_RETURN_IF_ERROR(stream_->copy(pinned + piece.pinned_offset, piece.own_slice, piece.own_bytes));
  HVD_ASSIGN_OR_RETURN(piece.is_out, stream_->record());
  return Status::ok();
}

Status DeviceGroup::finish_piece(const CollectiveCall& call, const HostPiece& piece, std::byte* pinned) {
  if (piece.own > 0) {
    HVD_RETURN_IF_ERROR(host_.wait_for(piece.is_out, [comm = of_host_] { return comm->trouble(); }));
    CollectiveCall across;
    across.dtype = call.dtype;
    across.reduce_op = call.reduce_op;
    across.scaling = {.after = call.scaling.after, .divisor = call.scaling.divisor};
    across.output = pinned + piece.pinned_offset;
    across.count = piece.own;
    HVD_RETURN_IF_ERROR(options_.by_host->reduce_across(across));
    HVD_RETURN_IF_ERROR(stream_->copy(piece.own_slice, across.output, piece.own_bytes));
  }
  CollectiveCall gather;
  gather.op = OpType::kAllgather;
  gather.dtype = call.dtype;
  gather.input = piece.own_slice;
  gather.output = piece.memory;
  gather.count = piece.own;
  gather.rank_counts = piece.slices;
  return of_host_->start(gather);
}

}  // namespace hvd::collectives::nccl
