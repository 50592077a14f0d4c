#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "test/runtime/collectives/conformance/cases.h"
#include "test/runtime/collectives/run_call.h"

namespace hvd::collectives {

// How much of a tensor each rank has.
enum class Parts : std::uint8_t {
  kEven,     // the first ranks have one more
  kOne,      // one rank has everything
  kGrowing,  // later ranks have more, and rank 2 has nothing
};
inline constexpr Parts kAllParts[] = {Parts::kEven, Parts::kOne, Parts::kGrowing};

inline std::vector<std::int64_t> split(std::int64_t count, int size, Parts parts) {
  std::vector<std::int64_t> counts;
  std::int64_t left = count;
  for (int rank = 0; rank < size; ++rank) {
    std::int64_t share = count / size + (rank < count % size ? 1 : 0);
    if (parts == Parts::kOne) share = rank == size / 2 ? count : 0;
    if (parts == Parts::kGrowing) share = rank + 1 == size ? left : rank == 2 ? 0 : count * (rank + 1) / (size * size);
    counts.push_back(share);
    left -= share;
  }
  return counts;
}

// What goes wrong on one rank in turn: "" when nothing does.
class Rank {
 public:
  Rank(int rank, int size, CollectiveBackend& backend) : rank_(rank), size_(size), backend_(backend) {}

  int rank() const { return rank_; }

  std::string allreduce(const Case& c, const Bytes& expected) const {
    const Bytes input = input_of(c, rank_);
    Buffer beside(input.size(), c.offset);
    Buffer source(input, c.offset);
    CollectiveCall call = make(OpType::kAllreduce, c);
    call.input = source.data();
    call.output = beside.data();
    Status status = run_call(backend_, call);
    if (!status.is_ok()) return status.to_string();
    if (!beside.holds(expected)) return "other bits in other memory";
    if (!source.holds(input)) return "the input was written";
    call.input = nullptr;
    call.output = source.data();
    status = run_call(backend_, call);
    return !status.is_ok() ? status.to_string() : source.holds(expected) ? "" : "other bits in place";
  }

  // The same tensor three times, each where it lies; one of them beside its input.
  std::string allreduce_list(const Case& c, const Bytes& expected) const {
    std::vector<Buffer> tensors;
    for (int i = 0; i < 3; ++i) tensors.emplace_back(input_of(c, rank_), c.offset);
    Buffer beside(expected.size(), c.offset);
    CollectiveCall call = make(OpType::kAllreduce, c);
    for (Buffer& tensor : tensors)
      call.segments.push_back({.input = tensor.data(), .output = tensor.data(), .count = c.count});
    call.segments[1].output = beside.data();
    call.segments.insert(call.segments.begin(), Segment{});  // nothing
    const Status status = run_call(backend_, call);
    if (!status.is_ok()) return status.to_string();
    if (!tensors[1].holds(input_of(c, rank_))) return "the input in a list was written";
    return tensors[0].holds(expected) && beside.holds(expected) && tensors[2].holds(expected) ? ""
                                                                                              : "other bits in a list";
  }

  // Three tensors in shared memory; `private_rank` has one of them elsewhere.
  std::string allreduce_shared(const Case& c, const Bytes& expected, ShmArena& arena, int private_rank) const {
    std::vector<Buffer> tensors;
    for (int i = 0; i < 3; ++i) {
      tensors.emplace_back(input_of(c, rank_), c.offset, i == 1 && rank_ == private_rank ? nullptr : &arena);
    }
    CollectiveCall call = make(OpType::kAllreduce, c);
    for (const Buffer& tensor : tensors) call.segments.push_back({.output = tensor.data(), .count = c.count});
    call.segments.insert(call.segments.begin() + 1, Segment{});  // nothing
    const Status status = run_call(backend_, call);
    if (!status.is_ok()) return status.to_string();
    const bool right = std::ranges::all_of(tensors, [&](const Buffer& tensor) { return tensor.holds(expected); });
    return right ? "" : "other bits in shared memory, private: " + std::to_string(private_rank);
  }

  // Tensors that are split in each way.
  std::string scatter_list(const Case& c, const Bytes& whole) const {
    CollectiveCall call = make(OpType::kReducescatter, c);
    Buffer source(input_of(c, rank_), c.offset);
    std::vector<Buffer> outputs;
    std::vector<Bytes> expected;
    for (const Parts parts : kAllParts) {
      const std::vector<std::int64_t> counts = split(c.count, size_, parts);
      const auto own = counts.begin() + rank_;
      const auto begin =
          whole.begin() + static_cast<std::ptrdiff_t>(c.bytes(std::accumulate(counts.begin(), own, std::int64_t{0})));
      expected.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(c.bytes(*own)));
      outputs.emplace_back(expected.back().size(), c.offset);
      call.segments.push_back({source.data(), nullptr, *own, counts});
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) call.segments[i].output = outputs[i].data();
    const Status status = run_call(backend_, call);
    if (!status.is_ok()) return status.to_string();
    return hold(outputs, expected) ? "" : "other bits of a list's reducescatter";
  }

  std::string gather_list(const Case& c) const {
    CollectiveCall call = make(OpType::kAllgather, c);
    std::vector<Buffer> inputs;
    std::vector<Buffer> outputs;
    std::vector<Bytes> expected;
    for (const Parts parts : kAllParts) {
      const std::vector<std::int64_t> counts = split(c.count, size_, parts);
      expected.emplace_back();
      for (int rank = 0; rank < size_; ++rank) {
        const Bytes part =
            random_elements(c.dtype, counts[static_cast<std::size_t>(rank)], static_cast<std::uint64_t>(rank));
        expected.back().insert(expected.back().end(), part.begin(), part.end());
        if (rank == rank_) inputs.emplace_back(part, c.offset);
      }
      outputs.emplace_back(expected.back().size(), c.offset);
      call.segments.push_back({nullptr, nullptr, counts[static_cast<std::size_t>(rank_)], counts});
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      call.segments[i].input = inputs[i].data();
      call.segments[i].output = outputs[i].data();
    }
    const Status status = run_call(backend_, call);
    if (!status.is_ok()) return status.to_string();
    return hold(outputs, expected) ? "" : "a wrong allgather of a list";
  }

  std::string reducescatter(const Case& c, const Bytes& whole, Parts parts) const {
    CollectiveCall call = make(OpType::kReducescatter, c);
    call.rank_counts = split(c.count, size_, parts);
    const auto own = call.rank_counts.begin() + rank_;
    const std::size_t begin = c.bytes(std::accumulate(call.rank_counts.begin(), own, std::int64_t{0}));
    const Bytes expected(whole.begin() + static_cast<std::ptrdiff_t>(begin),
                         whole.begin() + static_cast<std::ptrdiff_t>(begin + c.bytes(*own)));
    const Bytes input = input_of(c, rank_);
    Buffer source(input, c.offset);
    Buffer output(expected.size(), c.offset);
    call.input = source.data();
    call.output = output.data();
    Status status = run_call(backend_, call);
    if (!status.is_ok()) return status.to_string();
    if (!output.holds(expected)) return "other bits of reducescatter";
    if (!source.holds(input)) return "the input of reducescatter was written";
    call.output = source.data() + begin;
    status = run_call(backend_, call);
    if (!status.is_ok()) return status.to_string();
    Bytes in_place = input;
    std::copy(expected.begin(), expected.end(), in_place.begin() + static_cast<std::ptrdiff_t>(begin));
    return source.holds(in_place) ? "" : "other bits of reducescatter in place";
  }

  std::string allgather(const Case& c, Parts parts) const {
    CollectiveCall call = make(OpType::kAllgather, c);
    call.rank_counts = split(c.count, size_, parts);
    Bytes expected;
    std::size_t begin = 0;
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) begin = expected.size();
      const Bytes part =
          random_elements(c.dtype, call.rank_counts[static_cast<std::size_t>(rank)], static_cast<std::uint64_t>(rank));
      expected.insert(expected.end(), part.begin(), part.end());
    }
    call.count = call.rank_counts[static_cast<std::size_t>(rank_)];
    const Bytes mine = random_elements(c.dtype, call.count, static_cast<std::uint64_t>(rank_));
    Buffer input(mine, c.offset);
    Buffer output(expected.size(), c.offset);
    call.input = input.data();
    call.output = output.data();
    Status status = run_call(backend_, call);
    if (!status.is_ok()) return status.to_string();
    if (!output.holds(expected)) return "a wrong allgather";
    if (!input.holds(mine)) return "the input of allgather was written";
    Buffer in_place(expected.size(), c.offset);
    std::copy(mine.begin(), mine.end(), in_place.data() + begin);
    call.input = in_place.data() + begin;
    call.output = in_place.data();
    status = run_call(backend_, call);
    return !status.is_ok() ? status.to_string() : in_place.holds(expected) ? "" : "a wrong allgather in place";
  }

  // Rank r sends count / (r + t + 1) elements to rank t.
  std::string alltoall(const Case& c) const {
    CollectiveCall call = make(OpType::kAlltoall, c);
    Bytes sent;
    Bytes expected;
    for (int other = 0; other < size_; ++other) {
      call.rank_counts.push_back(c.count / (rank_ + other + 1));
      call.receive_counts.push_back(c.count / (rank_ + other + 1));
      const auto seed = [&](int from, int to) { return static_cast<std::uint64_t>(from * 100 + to); };
      const Bytes to = random_elements(c.dtype, call.rank_counts.back(), seed(rank_, other));
      const Bytes from = random_elements(c.dtype, call.receive_counts.back(), seed(other, rank_));
      sent.insert(sent.end(), to.begin(), to.end());
      expected.insert(expected.end(), from.begin(), from.end());
    }
    Buffer input(sent, c.offset);
    Buffer output(expected.size(), c.offset);
    call.input = input.data();
    call.output = output.data();
    const Status status = run_call(backend_, call);
    if (!status.is_ok()) return status.to_string();
    if (!input.holds(sent)) return "the input of alltoall was written";
    return output.holds(expected) ? "" : "a wrong alltoall";
  }

  std::string broadcast(const Case& c, int root) const {
    CollectiveCall call = make(OpType::kBroadcast, c);
    const Bytes expected = input_of(c, root);
    Buffer data(rank_ == root ? expected : Bytes(expected.size(), 0x11), c.offset);
    call.output = data.data();
    call.root = root;
    const Status status = run_call(backend_, call);
    if (!status.is_ok()) return status.to_string();
    return data.holds(expected) ? "" : "a wrong broadcast of rank " + std::to_string(root);
  }

 private:
  static CollectiveCall make(OpType op, const Case& c) {
    return {.op = op, .dtype = c.dtype, .reduce_op = c.op, .scaling = c.scaling, .count = c.count};
  }
  static bool hold(const std::vector<Buffer>& buffers, const std::vector<Bytes>& expected) {
    return std::ranges::equal(buffers, expected,
                              [](const Buffer& buffer, const Bytes& right) { return buffer.holds(right); });
  }

  const int rank_;
  const int size_;
  CollectiveBackend& backend_;
};

}  // namespace hvd::collectives
