// Allreduces host by host, in pieces: while one is between hosts, the next is reduced inside them and the last
// gathered.
#include <algorithm>
#include <numeric>
#include <system_error>
#include <utility>

#include "runtime/base/event.h"
#include "runtime/base/thread.h"
#include "runtime/base/work_queue.h"
#include "runtime/collectives/hierarchical_backend.h"
#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {

// A part of the tensor and its slices, of which this member brings its own to the other hosts.
struct HierarchicalBackend::Piece {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t count = 0;
  std::vector<std::int64_t> slices{};
  CollectiveCall across{};  // of the own slice
  bool is_beside = false;   // across runs on the other thread; until it has ended, that one has the result
  Event has_ended{};
  Status result{};
};

// Runs what goes between hosts, piece after piece, while the lane's thread does the steps inside this one. Owned by the
// backend; its pieces end by themselves or by an abort of the backend. After a failure it runs none: what other members
// receive might be taken for another piece.
class HierarchicalBackend::AcrossThread {
 public:
  explicit AcrossThread(const HierarchicalBackend& backend)
      : backend_(backend), thread_(start_thread("hvd-across", [this](const std::stop_token&) { run(); })) {}
  ~AcrossThread() { pieces_.close(); }
  AcrossThread(const AcrossThread&) = delete;
  AcrossThread& operator=(const AcrossThread&) = delete;

  // The piece and its memory stay until it has ended.
  void push(Piece& piece) { pieces_.push(&piece); }

 private:
  void run() {
    Status status;
    while (const std::optional<Piece*> piece = pieces_.pop()) {
      if (status.is_ok()) status = backend_.reduce_across((*piece)->across);
      (*piece)->result = status;
      (*piece)->has_ended.set();
    }
  }

  const HierarchicalBackend& backend_;
  WorkQueue<Piece*> pieces_;
  std::jthread thread_;  // last: it uses everything above
};

HierarchicalBackend::HierarchicalBackend(HostGroups groups) : groups_(std::move(groups)) {}

HierarchicalBackend::~HierarchicalBackend() = default;

// Each slice is reduced to its owner inside each host, by its owners between hosts, and gathered inside each host.
// Elements are scaled before in the first step and after in the second, as in passes of their own.
Status HierarchicalBackend::allreduce(const CollectiveCall& call) {
  std::deque<Piece> pieces = cut(call);
  const Status result = reduce_pieces(call, pieces);
  for (Piece& piece : pieces) {
    if (piece.is_beside) piece.has_ended.wait();
  }
  return result;
}

// All members do the same steps in the same order, each of which needs only those before it on others.
Status HierarchicalBackend::reduce_pieces(const CollectiveCall& call, std::deque<Piece>& pieces) {
  for (std::size_t i = 0; i <= pieces.size(); ++i) {
    if (i < pieces.size()) {
      HVD_RETURN_IF_ERROR(scatter(call, pieces[i]));
      begin_across(pieces[i], pieces.size());
    }
    if (i == 0) continue;
    Piece& last = pieces[i - 1];
    if (last.is_beside) last.has_ended.wait();
    HVD_RETURN_IF_ERROR(last.result);
    if (groups_.local == nullptr) continue;
    const CollectiveCall gather{.dtype = call.dtype, .reduce_op = call.reduce_op};
    HVD_RETURN_IF_ERROR(gather_locally(gather, last.across.output, last.output, last.slices));
  }
  return Status::ok();
}

// Pieces are about equal. Owners have enough of each for what a collective costs besides its bytes not to count.
std::deque<HierarchicalBackend::Piece> HierarchicalBackend::cut(const CollectiveCall& call) const {
  constexpr std::int64_t kWholeLines = 64;  // elements of any type
  const std::size_t element = element_size(call.dtype);
  const std::uint64_t smallest =
      groups_.owner_bytes * groups_.hosts.size() * static_cast<std::uint64_t>(groups_.slices);
  const std::uint64_t bytes = static_cast<std::uint64_t>(call.count) * element;
  const auto number = static_cast<std::int64_t>(std::max<std::uint64_t>(1, bytes / smallest));
  const std::int64_t most = ((call.count + number - 1) / number + kWholeLines - 1) / kWholeLines * kWholeLines;
  const void* const input = call.input != nullptr ? call.input : call.output;
  std::deque<Piece> pieces;
  for (std::int64_t begin = 0; begin < call.count; begin += most) {
    Piece& piece = pieces.emplace_back();
    const std::size_t offset = static_cast<std::size_t>(begin) * element;
    piece.input = static_cast<const std::byte*>(input) + offset;
    piece.output = static_cast<std::byte*>(call.output) + offset;
    piece.count = std::min(most, call.count - begin);
    piece.slices = slices_of(call.dtype, piece.count);
    const auto own = piece.slices.begin() + groups_.local_rank;
    const auto before = static_cast<std::size_t>(std::accumulate(piece.slices.begin(), own, std::int64_t{0}));
    piece.across = {.op = OpType::kAllreduce, .dtype = call.dtype, .reduce_op = call.reduce_op};
    piece.across.output = piece.output + before * element;
    piece.across.scaling = {.after = call.scaling.after, .divisor = call.scaling.divisor};
    piece.across.count = *own;
  }
  return pieces;
}

// Leaves in the own slice what this host's members have of it.
Status HierarchicalBackend::scatter(const CollectiveCall& call, const Piece& piece) const {
  if (groups_.local == nullptr) {
    kernels::scale_copy(call.dtype, piece.output, piece.input, piece.count, call.scaling.before);
    return Status::ok();
  }
  CollectiveCall part{.op = OpType::kReducescatter, .dtype = call.dtype, .reduce_op = call.reduce_op};
  part.input = piece.input;
  part.output = piece.across.output;
  part.count = piece.across.count;
  part.scaling = {.before = call.scaling.before};
  part.rank_counts = piece.slices;
  return scatter_locally(part);
}

// On this thread where there is nothing to do meanwhile, or where the system gives no other: others need not know.
void HierarchicalBackend::begin_across(Piece& piece, std::size_t pieces) {
  if (groups_.across == nullptr || piece.across.count == 0) return;
  if (pieces > 1 && across_thread_ == nullptr) {
    try {
      across_thread_ = std::make_unique<AcrossThread>(*this);
    } catch (const std::system_error&) {
    }
  }
  piece.is_beside = pieces > 1 && across_thread_ != nullptr;
  if (piece.is_beside) return across_thread_->push(piece);
  piece.result = reduce_across(piece.across);
}

}  // namespace hvd::collectives
