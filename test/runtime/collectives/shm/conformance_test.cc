// Every operation, type, reduction, size and alignment, against the same made by one thread.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <random>

#include "runtime/base/bytes.h"
#include "runtime/collectives/kernels/kernels.h"
#include "test/runtime/collectives/shm/shm_ranks.h"

namespace hvd::collectives {
namespace {

#ifdef HVD_SANITIZED
constexpr std::int64_t kCounts[] = {0, 7, 70001};
#else
// Around what fits one slot of 256 KiB and what every member reduces, and one with many rounds.
constexpr std::int64_t kCounts[] = {0, 1, 7, 1025, 4099, 70001};
#endif
constexpr std::int64_t kManyRounds = 400003;
constexpr std::int64_t kPattern = 9001;     // elements
constexpr std::size_t kOffsets[] = {0, 3};  // memory needs no alignment

struct Case {
  DataType dtype;
  ReduceOp op = ReduceOp::kSum;
  std::int64_t count = 0;
  kernels::Scaling scaling{};
  std::size_t offset = 0;

  std::string text() const {
    return std::string(data_type_name(dtype)) + " " + std::string(reduce_op_name(op)) + " x " + std::to_string(count) +
           " at " + std::to_string(offset) + ": ";
  }
  std::size_t bytes(std::int64_t n) const { return static_cast<std::size_t>(n) * element_size(dtype); }
};

// Bits of every kind but infinities and NaN, whose bits nobody promises.
Bytes make_pattern(DataType dtype) {
  Bytes bytes(static_cast<std::size_t>(kPattern) * element_size(dtype));
  std::mt19937_64 random(static_cast<std::uint64_t>(dtype));
  for (std::int64_t i = 0; i < kPattern; ++i) {
    std::uint8_t* const at = bytes.data() + static_cast<std::size_t>(i) * element_size(dtype);
    const std::uint64_t raw = dtype == DataType::kBool ? random() % 2 : random();
    const double value = static_cast<double>(static_cast<std::int64_t>(raw)) * 0x1p-60;
    const auto single = static_cast<float>(value);
    const auto half = static_cast<std::uint16_t>(0x3800U | (raw & 0x87ffU));
    switch (dtype) {
      case DataType::kFloat32: std::memcpy(at, &single, sizeof(single)); break;
      case DataType::kFloat64: std::memcpy(at, &value, sizeof(value)); break;
      case DataType::kFloat16:
      case DataType::kBfloat16: std::memcpy(at, &half, sizeof(half)); break;
      default: std::memcpy(at, &raw, element_size(dtype));
    }
  }
  return bytes;
}

// Another place of the pattern for each seed.
Bytes random_elements(DataType dtype, std::int64_t n, std::uint64_t seed) {
  static const auto patterns = [] {
    std::vector<Bytes> all;
    for (int d = 0; d < kDataTypeCount; ++d) all.push_back(make_pattern(static_cast<DataType>(d)));
    return all;
  }();
  const Bytes& pattern = patterns[static_cast<std::size_t>(dtype)];
  Bytes bytes(static_cast<std::size_t>(n) * element_size(dtype));
  const std::size_t begin = static_cast<std::size_t>(seed * 37 % 1000) * element_size(dtype);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = std::min(bytes.size() - at, pattern.size() - begin);
    std::memcpy(bytes.data() + at, pattern.data() + begin, size);
    at += size;
  }
  return bytes;
}

// Memory at an offset, of the rank alone or of its arena, with guards that nobody may write.
class Buffer {
 public:
  Buffer(const Bytes& content, std::size_t offset, ShmArena* arena = nullptr)
      : offset_(offset),
        bytes_(offset + content.size() + kGuard),
        memory_(arena != nullptr ? arena->take(bytes_) : std::shared_ptr<void>(std::malloc(bytes_), std::free)) {
    std::fill_n(begin(), bytes_, std::uint8_t{0xee});
    std::copy(content.begin(), content.end(), data());
  }
  Buffer(std::size_t size, std::size_t offset) : Buffer(Bytes(size, 0xdd), offset) {}
  Buffer(Buffer&&) = default;
  std::uint8_t* data() const { return begin() + offset_; }
  bool holds(const Bytes& expected) const {
    std::uint8_t* const behind = begin() + bytes_ - kGuard;
    const auto is_guard = [](std::uint8_t byte) { return byte == 0xee; };
    return std::equal(data(), behind, expected.begin(), expected.end()) && std::all_of(begin(), data(), is_guard) &&
           std::all_of(behind, behind + kGuard, is_guard);
  }

 private:
  static constexpr std::size_t kGuard = 64;
  std::uint8_t* begin() const { return static_cast<std::uint8_t*>(memory_.get()); }
  std::size_t offset_;
  std::size_t bytes_;
  std::shared_ptr<void> memory_;
};

Bytes input_of(const Case& c, int rank) {
  return random_elements(c.dtype, c.count,
                         static_cast<std::uint64_t>(rank) * 7919 + static_cast<std::uint64_t>(c.count));
}

// What one thread makes of it, in the order of the ranks and in separate passes.
Bytes reduced(const Case& c, int size) {
  Bytes sum;
  for (int rank = 0; rank < size; ++rank) {
    Bytes next = input_of(c, rank);
    kernels::scale_copy(c.dtype, next.data(), next.data(), c.count, c.scaling.before);
    if (rank > 0) kernels::reduce(c.dtype, c.op, next.data(), sum.data(), next.data(), c.count);
    sum = std::move(next);
  }
  kernels::scale_result(c.dtype, sum.data(), sum.data(), c.count, c.scaling);
  return sum;
}

// What goes wrong on one rank in turn: "" when nothing does.
class Rank {
 public:
  Rank(int rank, int size, ShmBackend& backend) : rank_(rank), size_(size), backend_(backend) {}

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

  // Two tensors that are split in two ways.
  std::string scatter_list(const Case& c, const Bytes& whole) const {
    CollectiveCall call = make(OpType::kReducescatter, c);
    Buffer source(input_of(c, rank_), c.offset);
    std::vector<Buffer> outputs;
    std::vector<Bytes> expected;
    for (const bool uneven : {false, true}) {
      const std::vector<std::int64_t> counts = split(c.count, uneven);
      const auto own = counts.begin() + rank_;
      const auto begin =
          whole.begin() + static_cast<std::ptrdiff_t>(c.bytes(std::accumulate(counts.begin(), own, std::int64_t{0})));
      expected.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(c.bytes(*own)));
      outputs.emplace_back(expected.back().size(), c.offset);
      call.segments.push_back({source.data(), nullptr, *own, counts});
    }
    for (std::size_t i = 0; i < 2; ++i) call.segments[i].output = outputs[i].data();
    const Status status = run_call(backend_, call);
    if (!status.is_ok()) return status.to_string();
    return outputs[0].holds(expected[0]) && outputs[1].holds(expected[1]) ? "" : "other bits of a list's reducescatter";
  }

  std::string gather_list(const Case& c) const {
    CollectiveCall call = make(OpType::kAllgather, c);
    std::vector<Buffer> inputs;
    std::vector<Buffer> outputs;
    std::vector<Bytes> expected(2);
    for (const bool uneven : {false, true}) {
      const std::vector<std::int64_t> counts = split(c.count, uneven);
      for (int rank = 0; rank < size_; ++rank) {
        const Bytes part =
            random_elements(c.dtype, counts[static_cast<std::size_t>(rank)], static_cast<std::uint64_t>(rank));
        expected[uneven].insert(expected[uneven].end(), part.begin(), part.end());
        if (rank == rank_) inputs.emplace_back(part, c.offset);
      }
      outputs.emplace_back(expected[uneven].size(), c.offset);
      call.segments.push_back({nullptr, nullptr, counts[static_cast<std::size_t>(rank_)], counts});
    }
    for (std::size_t i = 0; i < 2; ++i) {
      call.segments[i].input = inputs[i].data();
      call.segments[i].output = outputs[i].data();
    }
    const Status status = run_call(backend_, call);
    if (!status.is_ok()) return status.to_string();
    return outputs[0].holds(expected[0]) && outputs[1].holds(expected[1]) ? "" : "a wrong allgather of a list";
  }

  // The first ranks get one more, or everything.
  std::string reducescatter(const Case& c, const Bytes& whole, bool uneven) const {
    CollectiveCall call = make(OpType::kReducescatter, c);
    call.rank_counts = split(c.count, uneven);
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

  std::string allgather(const Case& c, bool uneven) const {
    CollectiveCall call = make(OpType::kAllgather, c);
    call.rank_counts = split(c.count, uneven);
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
    return !status.is_ok() ? status.to_string() : output.holds(expected) ? "" : "a wrong alltoall";
  }

  std::string broadcast(const Case& c) const {
    for (const int root : {0, size_ - 1}) {
      CollectiveCall call = make(OpType::kBroadcast, c);
      const Bytes expected = input_of(c, root);
      Buffer data(rank_ == root ? expected : Bytes(expected.size(), 0x11), c.offset);
      call.output = data.data();
      call.root = root;
      const Status status = run_call(backend_, call);
      if (!status.is_ok()) return status.to_string();
      if (!data.holds(expected)) return "a wrong broadcast";
    }
    return "";
  }

 private:
  static CollectiveCall make(OpType op, const Case& c) {
    return {.op = op, .dtype = c.dtype, .reduce_op = c.op, .scaling = c.scaling, .count = c.count};
  }
  std::vector<std::int64_t> split(std::int64_t count, bool uneven) const {
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < size_; ++rank) {
      const std::int64_t even = count / size_ + (rank < count % size_ ? 1 : 0);
      counts.push_back(!uneven ? even : rank == size_ / 2 ? count : 0);
    }
    return counts;
  }

  const int rank_;
  const int size_;
  ShmBackend& backend_;
};

// Under a sanitizer, which is slow, one of each kind.
bool is_chosen([[maybe_unused]] DataType dtype) {
#ifdef HVD_SANITIZED
  return dtype == DataType::kInt8 || dtype == DataType::kBfloat16 || dtype == DataType::kFloat32;
#else
  return true;
#endif
}

std::vector<Case> reductions() {
  std::vector<Case> cases;
  for (int d = 0; d < kDataTypeCount; ++d) {
    const auto dtype = static_cast<DataType>(d);
    if (!is_chosen(dtype)) continue;
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      if (!kernels::can_reduce(dtype, op)) continue;
      const bool is_product_of_halves =
          op == ReduceOp::kProduct && (dtype == DataType::kFloat16 || dtype == DataType::kBfloat16);
      for (const std::int64_t count : kCounts) {
        if (is_product_of_halves && count > 8) continue;  // infinities
        for (const std::size_t offset : kOffsets) {
          const bool is_skipped =
              count > 1025 && offset == kOffsets[static_cast<std::size_t>(d + static_cast<int>(op)) % 2];
          if (!is_skipped) cases.push_back({dtype, op, count, {}, offset});
        }
      }
    }
  }
  for (const DataType dtype : {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBfloat16,
                               DataType::kInt32, DataType::kInt64}) {
    for (const std::int64_t count : {std::int64_t{5}, std::int64_t{140003}}) {
      cases.push_back({dtype, ReduceOp::kSum, count, {0.7, 1.0 / 3.0}});
      cases.push_back({dtype, ReduceOp::kSum, count, {1.0, 0.5}});
    }
  }
  cases.push_back({DataType::kInt32, ReduceOp::kSum, 140003, {1.0, 1.0, 3}});
  cases.push_back({DataType::kFloat32, ReduceOp::kSum, kManyRounds});
  return cases;
}

// `expected`: of each case, made once.
std::string run_on_all(int size,
                       const std::function<std::string(const Rank&, const Case&, const Bytes&, ShmArena&)>& run,
                       const std::vector<Case>& cases) {
  std::vector<std::string> problems(static_cast<std::size_t>(size));
  std::vector<Bytes> expected;
  for (const Case& c : cases) {
    expected.push_back(kernels::can_reduce(c.dtype, c.op) ? reduced(c, size) : Bytes());
  }
  const ShmRanks ranks(size, 16U << 20);
  ranks.run([&](int rank, ShmBackend& backend) {
    const Rank own(rank, size, backend);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const std::string found = run(own, cases[i], expected[i], ranks.arena(rank));
      if (!found.empty()) problems[static_cast<std::size_t>(rank)] += cases[i].text() + found + "\n";
    }
  });
  std::string all;
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (!problems[rank].empty()) all += "rank " + std::to_string(rank) + ": " + problems[rank].substr(0, 500);
  }
  return all;
}

#ifdef HVD_SANITIZED
const auto kSizes = {2, 3};
#else
const auto kSizes = {2, 3, 8};
#endif

TEST_CASE("Reductions in shared memory have the bits of one thread's, in place and not", "[multi][collectives]") {
  const int size = GENERATE(from_range(kSizes));
  CHECK(run_on_all(
            size,
            [](const Rank& rank, const Case& c, const Bytes& sum, ShmArena&) {
              return rank.allreduce(c, sum) + rank.allreduce_list(c, sum);
            },
            reductions()) == "");
}

TEST_CASE("Tensors that are shared are reduced where they lie, to the same bits", "[multi][collectives]") {
  const int size = GENERATE(from_range(kSizes));
  std::vector<Case> cases;
  for (const Case& c : reductions()) {
    if (c.op == ReduceOp::kSum || c.dtype == DataType::kFloat32) cases.push_back(c);
  }
  const auto run = [](const Rank& rank, const Case& c, const Bytes& sum, ShmArena& arena) {
    return rank.allreduce_shared(c, sum, arena, -1) + rank.allreduce_shared(c, sum, arena, 1);
  };
  CHECK(run_on_all(size, run, cases) == "");
}

TEST_CASE("Tensors that are shared take one round, however large they are", "[multi][collectives]") {
  const ShmRanks ranks(3, 8U << 20);
  std::vector<int> wrong(3);
  ranks.run([&](int rank, ShmBackend& backend) {
    const auto memory = ranks.arena(rank).take(4U << 20);
    auto* const data = static_cast<float*>(memory.get());
    const std::int64_t count = (4 << 20) / sizeof(float);
    std::fill_n(data, count, static_cast<float>(rank));
    const Status status = run_call(backend, {.op = OpType::kAllreduce, .output = data, .count = count});
    const bool right = status.is_ok() && std::count(data, data + count, 3.0F) == count;
    if (!right || !run_call(backend, {.op = OpType::kBarrier}).is_ok()) ++wrong[static_cast<std::size_t>(rank)];
  });
  CHECK(wrong == std::vector<int>(3));
  // Staged, reduced and done in the first round, done in the second, on each.
  CHECK(ranks.backend(ranks.all(), 0)->progress().moved == 3 * (1 + 1 + 2));
}

TEST_CASE("Memory that a rank names is reduced only inside the arenas", "[unit][collectives]") {
  const ShmRanks ranks(2, 8192);
  const ShmSegment& segment = ranks.segment();
  const auto own = segment.arena(1);
  CHECK(segment.offset_of(own.data(), own.size()) == 8192);
  CHECK(segment.at(8192, 8192) == own.data());
  CHECK(segment.offset_of(own.data(), own.size() + 1) == std::nullopt);
  CHECK(segment.offset_of(segment.arena(0).data() - 1, 1) == std::nullopt);
  CHECK(segment.at(16384, 1) == nullptr);
  CHECK(segment.at(~std::uint64_t{0}, 2) == nullptr);
}

TEST_CASE("An arena gives zeros, and room again when they are gone", "[unit][collectives]") {
  const ShmRanks ranks(2, 5 * 4096);
  ShmArena& arena = ranks.arena(1);
  auto first = arena.take(1);
  auto second = arena.take(4097);
  auto third = arena.take(8192);
  CHECK(first.get() == ranks.segment().arena(1).data());
  CHECK(arena.take(1) == nullptr);
  std::memset(second.get(), 1, 8192);
  second.reset();
  CHECK(arena.take(8193) == nullptr);
  first.reset();
  first = arena.take(12288);  // both that are free
  REQUIRE(first != nullptr);
  CHECK(std::count(static_cast<char*>(first.get()), static_cast<char*>(first.get()) + 12288, 0) == 12288);
  third.reset();
  first.reset();
  CHECK(arena.take(5 * 4096) != nullptr);
  CHECK(arena.take(5 * 4096 + 1) == nullptr);
}

TEST_CASE("Reducescatter in shared memory gives each rank its part, however uneven", "[multi][collectives]") {
  const int size = GENERATE(from_range(kSizes));
  std::vector<Case> cases;
  for (const Case& c : reductions()) {
    const bool is_rare = c.dtype == DataType::kInt8 || c.dtype == DataType::kUint16 || c.dtype == DataType::kFloat64;
    if (!is_rare) cases.push_back(c);
  }
  const auto run = [](const Rank& rank, const Case& c, const Bytes& sum, ShmArena&) {
    const std::string found = rank.reducescatter(c, sum, false);
    return found.empty() ? rank.reducescatter(c, sum, true) + rank.scatter_list(c, sum) : found;
  };
  CHECK(run_on_all(size, run, cases) == "");
}

TEST_CASE("What is only moved in shared memory arrives as it was", "[multi][collectives]") {
  const int size = GENERATE(from_range(kSizes));
  std::vector<Case> cases;
  for (const DataType dtype : {DataType::kUint8, DataType::kBfloat16, DataType::kFloat32, DataType::kInt64}) {
    for (const std::int64_t count : kCounts) {
      for (const std::size_t offset : kOffsets) cases.push_back({.dtype = dtype, .count = count, .offset = offset});
    }
  }
  cases.push_back({.dtype = DataType::kFloat32, .count = kManyRounds});
  const auto run = [](const Rank& rank, const Case& c, const Bytes&, ShmArena&) {
    std::string found = rank.broadcast(c) + rank.alltoall(c) + rank.allgather(c, false);
    return found.empty() ? rank.allgather(c, true) + rank.gather_list(c) : found;
  };
  CHECK(run_on_all(size, run, cases) == "");
}

TEST_CASE("What shared memory does not take is said in words", "[unit][collectives]") {
  const ShmRanks ranks(2);
  const auto backend = ranks.backend({0, 1}, 0);
  CHECK(backend->why_not({.op = OpType::kAllreduce, .dtype = DataType::kFloat32}) == "");
  CHECK(backend->why_not({.op = OpType::kJoin}) == "it has no join");
  CHECK(backend->why_not({.op = OpType::kAdasum, .dtype = DataType::kInt32}) ==
        "int32 tensors have no Adasum; floating point is needed");
  CHECK(backend->why_not({.memory = MemoryKind::kDevice}) == "it reaches host memory only");
  CHECK(backend->why_not({.op = OpType::kAllreduce, .dtype = DataType::kBool}) == "bool tensors have no reduction Sum");
  std::vector<float> data(2);
  CollectiveCall wrong{.op = OpType::kAllgather, .input = data.data(), .output = data.data(), .rank_counts = {1}};
  CHECK(run_call(*backend, wrong).message() == "allgather with 1 counts for 2 ranks");
  wrong.segments = {{.input = data.data(), .output = data.data(), .count = 1, .rank_counts = {1, 1, 1}}};
  CHECK(run_call(*backend, wrong).message() == "allgather with 3 counts for 2 ranks");
  ShmBackend without({nullptr, "rank 1 has none"}, {.ranks = {0, 1}, .why_not = "rank 1 has none"});
  CHECK(without.why_not({}) == "rank 1 has none");
  CHECK(run_call(without, {}).message() == "shm does not take this call: rank 1 has none");
  const ShmBackend exact({ShmSegment::create(3).value().first, ""},
                         {.ranks = {0, 1, 2}, .why_not = "", .deterministic = true});
  CHECK(exact.why_not({}) == "HOROVOD_DETERMINISTIC with more than 2 ranks");
  CHECK(exact.why_not({.op = OpType::kAdasum}) == "HOROVOD_DETERMINISTIC");
  CHECK(exact.why_not({.op = OpType::kBroadcast}) == "");
}

}  // namespace
}  // namespace hvd::collectives
