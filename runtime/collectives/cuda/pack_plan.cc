#include "runtime/collectives/cuda/pack_plan.h"

#include <algorithm>
#include <numeric>

namespace hvd::collectives::cuda {

namespace {

std::size_t round_up(std::size_t bytes) {
  return (bytes + Memory::kAlignment - 1) / Memory::kAlignment * Memory::kAlignment;
}

// Builds the plan of one call.
class Packing {
 public:
  Packing(const CollectiveCall& call, int set_size, int set_rank)
      : call_(call),
        element_(element_size(call.dtype)),
        ranks_(static_cast<std::size_t>(set_size)),
        own_(static_cast<std::size_t>(set_rank)) {
    tensors_ = call.segments;
    if (tensors_.empty()) tensors_.push_back({call.input, call.output, call.count, call.rank_counts});
    plan_.call = call;
    plan_.own = own_;
    plan_.call.segments.clear();
    plan_.call.use = {};
    plan_.call.memory = MemoryKind::kHost;
  }

  PackPlan make() {
    switch (call_.op) {
      case OpType::kAllgather: gather(); break;
      case OpType::kReducescatter: scatter(); break;
      case OpType::kAlltoall: exchange(); break;
      case OpType::kBroadcast: broadcast(); break;
      default: reduce(); break;
    }
    return std::move(plan_);
  }

 private:
  std::size_t bytes(std::int64_t elements) const { return static_cast<std::size_t>(elements) * element_; }
  static void* part(const void* tensor, std::size_t offset) {
    // The plan's user copies into outputs only.
    return tensor == nullptr ? nullptr : const_cast<std::byte*>(static_cast<const std::byte*>(tensor)) + offset;
  }
  static const void* input_of(const Segment& tensor) { return tensor.input != nullptr ? tensor.input : tensor.output; }
  void copy_in(std::size_t offset, const void* tensor, std::size_t n) {
    if (n > 0) plan_.in.push_back({offset, part(tensor, 0), n});
  }
  void copy_out(std::size_t offset, void* tensor, std::size_t n) {
    if (n > 0 && tensor != nullptr) plan_.out.push_back({offset, tensor, n});
  }

  void reduce() {
    plan_.call.count = 0;
    plan_.call.tensor_counts.clear();
    for (const Segment& tensor : tensors_) {
      copy_in(plan_.bytes, input_of(tensor), bytes(tensor.count));
      copy_out(plan_.bytes, tensor.output, bytes(tensor.count));
      plan_.bytes += bytes(tensor.count);
      plan_.call.count += tensor.count;
      if (call_.op == OpType::kAdasum) plan_.call.tensor_counts.push_back(tensor.count);
    }
  }

  void broadcast() {
    const Segment& tensor = tensors_.front();
    plan_.bytes = bytes(tensor.count);
    if (static_cast<int>(own_) != call_.root) return copy_out(0, tensor.output, plan_.bytes);
    copy_in(0, input_of(tensor), plan_.bytes);
    if (tensor.output != input_of(tensor)) copy_out(0, tensor.output, plan_.bytes);
  }

  void sum_rank_counts() {
    plan_.call.rank_counts.assign(ranks_, 0);
    for (const Segment& tensor : tensors_) {
      for (std::size_t rank = 0; rank < ranks_; ++rank) plan_.call.rank_counts[rank] += tensor.rank_counts[rank];
    }
  }

  // The first rank's rows of all tensors, then the second rank's, and so on.
  void gather() {
    sum_rank_counts();
    std::vector<std::size_t> filled(tensors_.size(), 0);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (rank == own_) plan_.input_offset = plan_.bytes;
      for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const std::size_t n = bytes(tensors_[i].rank_counts[rank]);
        if (rank == own_) copy_in(plan_.bytes, input_of(tensors_[i]), n);
        copy_out(plan_.bytes, part(tensors_[i].output, filled[i]), n);
        filled[i] += n;
        plan_.bytes += n;
      }
    }
    plan_.has_input = true;
    plan_.call.count = plan_.call.rank_counts[own_];
  }

  // All tensors' rows for the first rank, then all rows for the second; the result takes the place of the own part.
  void scatter() {
    sum_rank_counts();
    std::vector<std::size_t> taken(tensors_.size(), 0);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (rank == own_) plan_.output_offset = plan_.bytes;
      for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const std::size_t n = bytes(tensors_[i].rank_counts[rank]);
        copy_in(plan_.bytes, part(tensors_[i].input, taken[i]), n);
        if (rank == own_) copy_out(plan_.bytes, tensors_[i].output, n);
        taken[i] += n;
        plan_.bytes += n;
      }
    }
    plan_.has_input = true;
    plan_.call.count = 0;
  }

  void exchange() {
    const auto total = [this](const std::vector<std::int64_t>& counts) {
      return bytes(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
    };
    const std::size_t sent = total(call_.rank_counts);
    const std::size_t received = total(call_.receive_counts);
    copy_in(0, call_.input, sent);
    plan_.has_input = true;
    plan_.output_offset = round_up(sent);
    copy_out(plan_.output_offset, call_.output, received);
    plan_.bytes = plan_.output_offset + received;
  }

  const CollectiveCall& call_;
  const std::size_t element_;
  const std::size_t ranks_;
  const std::size_t own_;
  std::vector<Segment> tensors_;
  PackPlan plan_;
};

// What of `copies`, which are in order, lies from `begin` to `end`, moved to `place`.
void take(const std::vector<PackPlan::Copy>& copies, std::size_t begin, std::size_t end, std::size_t place,
          std::vector<PackPlan::Copy>& into) {
  if (begin == end) return;
  auto copy = std::ranges::partition_point(copies, [&](const auto& one) { return one.offset + one.bytes <= begin; });
  for (; copy != copies.end() && copy->offset < end; ++copy) {
    const std::size_t from = std::max(begin, copy->offset);
    const std::size_t to = std::min(end, copy->offset + copy->bytes);
    auto* const tensor = static_cast<std::byte*>(copy->tensor);
    into.push_back({place + (from - begin), tensor == nullptr ? nullptr : tensor + (from - copy->offset), to - from});
  }
}

// Slice `slice` of each rank's part, of the parts that lie side by side from `begin` on in `whole`: to `place` and what
// follows it. How many elements of each rank that is.
std::vector<std::int64_t> take_slices(const PackPlan& whole, const std::vector<std::int64_t>& parts, std::size_t begin,
                                      std::size_t slice, std::size_t slices, std::size_t& place, PackPlan& piece) {
  const std::size_t element = element_size(whole.call.dtype);
  std::vector<std::int64_t> counts;
  for (const std::int64_t part : parts) {
    const auto n = static_cast<std::size_t>(part);
    const auto share = [&](std::size_t before) { return n / slices * before + std::min(before, n % slices); };
    const std::size_t from = begin + share(slice) * element;
    const std::size_t to = begin + share(slice + 1) * element;
    take(whole.in, from, to, place, piece.in);
    take(whole.out, from, to, place, piece.out);
    counts.push_back(static_cast<std::int64_t>((to - from) / element));
    place += to - from;
    begin += n * element;
  }
  return counts;
}

}  // namespace

std::vector<PackPlan> PackPlan::pieces(std::size_t most) const {
  switch (call.op) {
    case OpType::kAllreduce:
    case OpType::kBroadcast: return bytes <= most ? std::vector{*this} : ranges(most);
    case OpType::kAllgather:
    case OpType::kReducescatter: return slices((bytes + most - 1) / most);
    case OpType::kAlltoall:
      return slices((static_cast<std::size_t>(call.most_sent) * element_size(call.dtype) + most - 1) / most);
    default: return {*this};
  }
}

std::vector<PackPlan> PackPlan::ranges(std::size_t most) const {
  std::vector<PackPlan> all;
  for (std::size_t begin = 0; begin < bytes; begin += most) {
    const std::size_t end = std::min(begin + most, bytes);
    PackPlan piece;
    take(in, begin, end, begin, piece.in);
    take(out, begin, end, begin, piece.out);
    piece.bytes = end - begin;
    piece.call = call;
    piece.call.count = static_cast<std::int64_t>(piece.bytes / element_size(call.dtype));
    piece.output_offset = begin;
    all.push_back(std::move(piece));
  }
  return all;
}

std::vector<PackPlan> PackPlan::slices(std::size_t pieces) const {
  if (pieces <= 1) return {*this};
  std::vector<PackPlan> all;
  std::size_t place = 0;
  std::size_t received = output_offset;  // of an alltoall: the other side begins there
  for (std::size_t i = 0; i < pieces; ++i) {
    PackPlan piece;
    piece.call = call;
    piece.has_input = true;
    piece.input_offset = piece.output_offset = place;
    piece.call.rank_counts = take_slices(*this, call.rank_counts, 0, i, pieces, place, piece);
    const auto& counts = piece.call.rank_counts;
    const auto before =
        std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(own), std::int64_t{0});
    const std::size_t own_offset = piece.input_offset + static_cast<std::size_t>(before) * element_size(call.dtype);
    if (call.op == OpType::kAllgather) {
      piece.input_offset = own_offset;
      piece.call.count = counts[own];
    } else if (call.op == OpType::kReducescatter) {
      piece.output_offset = own_offset;
    } else {
      piece.output_offset = received;
      piece.call.receive_counts = take_slices(*this, call.receive_counts, output_offset, i, pieces, received, piece);
    }
    all.push_back(std::move(piece));
  }
  return all;
}

CollectiveCall PackPlan::at(void* base) const {
  auto* const start = static_cast<std::byte*>(base);
  CollectiveCall placed = call;
  placed.input = has_input ? start + input_offset : nullptr;
  placed.output = start + output_offset;
  return placed;
}

PackPlan plan_packing(const CollectiveCall& call, int set_size, int set_rank) {
  return Packing(call, set_size, set_rank).make();
}

}  // namespace hvd::collectives::cuda
