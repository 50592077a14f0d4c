#include <catch2/catch.hpp>

#include <cstring>
#include <numeric>

#include "runtime/collectives/kernels/kernels.h"
#include "test/runtime/collectives/gloo/rank_threads.h"

// Scaling on the way and results in other memory, against the same collective between separate passes over the memory.
namespace hvd::collectives {
namespace {

#ifdef HVD_SANITIZED  // slow there: only one that is small and one for the ring
constexpr std::int64_t kCounts[] = {3, 140003};
#else
constexpr std::int64_t kCounts[] = {3, 5001, 140003};
#endif

struct Case {
  DataType dtype;
  kernels::Scaling scaling;
};
const Case kCases[] = {
    {DataType::kFloat32, {0.7, 1.0 / 3.0}},
    {DataType::kFloat32, {1.0, 0.5}},
    {DataType::kFloat32, {3.0, 1.0}},
    {DataType::kBfloat16, {0.7, 0.3}},
    {DataType::kInt32, {1.0, 1.0, 3}},
    {DataType::kInt64, {2.5, 0.4}},
    {DataType::kBool, {}},
};

ReduceOp op_of(const Case& c) { return c.dtype == DataType::kBool ? ReduceOp::kMax : ReduceOp::kSum; }

Bytes input_of(const Case& c, int rank, std::int64_t count) {
  Bytes bytes(static_cast<std::size_t>(count) * element_size(c.dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>((i * 7 + rank * 11) % 2003) * 0.37F - 300.0F;
    std::uint8_t* const at = bytes.data() + static_cast<std::size_t>(i) * element_size(c.dtype);
    if (c.dtype == DataType::kFloat32) std::memcpy(at, &value, 4);
    if (c.dtype == DataType::kBfloat16) std::memcpy(at, reinterpret_cast<const std::uint8_t*>(&value) + 2, 2);
    const auto whole = static_cast<std::int64_t>(value);
    if (c.dtype == DataType::kInt32 || c.dtype == DataType::kInt64) std::memcpy(at, &whole, element_size(c.dtype));
    if (c.dtype == DataType::kBool) *at = static_cast<std::uint8_t>(i % 3 == rank % 3);
  }
  return bytes;
}

// Runs both ways and says what differs.
class Rank {
 public:
  Rank(const Case& c, int rank, std::int64_t count)
      : case_(c), rank_(rank), count_(count), input_(input_of(c, rank, count)) {}

  std::string allreduce(GlooBackend& backend) const {
    CollectiveCall call = make(OpType::kAllreduce);
    Bytes expected = scaled_input();
    call.output = expected.data();
    const Status unscaled = run_call(backend, call);
    finish(expected, count_);
    Bytes beside(input_.size(), 0xee);
    call.scaling = case_.scaling;
    call.input = input_.data();
    call.output = beside.data();
    const Status other = run_call(backend, call);
    Bytes in_place = input_;
    call.input = call.output = in_place.data();
    const Status same = run_call(backend, call);
    if (!unscaled.is_ok() || !other.is_ok() || !same.is_ok())
      return unscaled.to_string() + other.to_string() + same.to_string();
    if (input_ != input_of(case_, rank_, count_)) return "the input was written";
    if (beside != expected) return "other bits in other memory";
    return in_place == expected ? "" : "other bits in place";
  }

  std::string reducescatter(GlooBackend& backend, int size) const {
    CollectiveCall call = make(OpType::kReducescatter);
    for (int r = 0; r < size; ++r) call.rank_counts.push_back(count_ / size + (r < count_ % size ? 1 : 0));
    const std::int64_t own = call.rank_counts[static_cast<std::size_t>(rank_)];
    Bytes expected(static_cast<std::size_t>(own) * element_size(case_.dtype));
    const Bytes before = scaled_input();
    call.input = before.data();
    call.output = expected.data();
    const Status unscaled = run_call(backend, call);
    finish(expected, own);
    Bytes output(expected.size(), 0xee);
    call.scaling = case_.scaling;
    call.input = input_.data();
    call.output = output.data();
    const Status other = run_call(backend, call);
    if (!unscaled.is_ok() || !other.is_ok()) return unscaled.to_string() + other.to_string();
    if (input_ != input_of(case_, rank_, count_)) return "the input of reducescatter was written";
    return output == expected ? "" : "other bits of reducescatter";
  }

 private:
  CollectiveCall make(OpType op) const {
    return {.op = op, .dtype = case_.dtype, .reduce_op = op_of(case_), .count = count_};
  }
  Bytes scaled_input() const {
    Bytes bytes(input_.size());
    kernels::scale_copy(case_.dtype, bytes.data(), input_.data(), count_, case_.scaling.before);
    return bytes;
  }
  void finish(Bytes& bytes, std::int64_t n) const {
    kernels::scale_result(case_.dtype, bytes.data(), bytes.data(), n, case_.scaling);
  }

  const Case& case_;
  const int rank_;
  const std::int64_t count_;
  const Bytes input_;
};

TEST_CASE("Scaling inside a reduction gives the bits of separate passes and leaves the input alone",
          "[multi][collectives]") {
  const int size = GENERATE(rank_counts({1, 2, 3, 5}));
  const bool deterministic = GENERATE(false, true);
  std::vector<std::string> problems(static_cast<std::size_t>(size));
  run_ranks(size,
            [&](int rank, GlooBackend& backend) {
              std::string& problem = problems[static_cast<std::size_t>(rank)];
              for (const std::int64_t count : kCounts) {
                for (const Case& c : kCases) {
                  const Rank mine(c, rank, count);
                  std::string found = mine.allreduce(backend);
                  if (found.empty()) found = mine.reducescatter(backend, size);
                  if (!found.empty())
                    problem +=
                        std::string(data_type_name(c.dtype)) + " x " + std::to_string(count) + ": " + found + "\n";
                }
              }
            },
            {.deterministic = deterministic});
  for (const std::string& problem : problems) CHECK(problem == "");
}

}  // namespace
}  // namespace hvd::collectives
