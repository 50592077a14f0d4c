#include <catch2/catch.hpp>

#include <cstring>
#include <numeric>

#include "runtime/collectives/kernels/kernels.h"
#include "test/runtime/collectives/gloo/rank_threads.h"

namespace hvd::collectives {
namespace {

using Counts = std::vector<std::int64_t>;

std::int64_t sum(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

// ---- alltoall

// Elements that `from` sends to `to`.
std::int64_t sent(const std::string& shape, int from, int to, int size) {
  if (shape == "one each") return 1;
  if (shape == "rank + 1 each") return from + 1;
  if (shape == "a rank sends nothing") return from == 0 ? 0 : 3 * to + 1;
  if (shape == "a rank receives nothing") return to == size - 1 ? 0 : 5;
  if (shape == "large") return from == to ? 3 : 70001 + 13 * from + to;
  return 0;  // "nothing"
}

std::uint8_t pattern(int from, int to, std::size_t i) {
  return static_cast<std::uint8_t>(static_cast<std::size_t>(from) * 31 + static_cast<std::size_t>(to) * 17 + i * 7 + 1);
}

// The bytes for every rank, or from every rank, one after the other.
Bytes parts(const std::string& shape, int rank, int size, std::size_t element, bool outgoing) {
  Bytes all;
  for (int peer = 0; peer < size; ++peer) {
    const int from = outgoing ? rank : peer;
    const int to = outgoing ? peer : rank;
    const auto bytes = static_cast<std::size_t>(sent(shape, from, to, size)) * element;
    for (std::size_t i = 0; i < bytes; ++i) all.push_back(pattern(from, to, i));
  }
  return all;
}

TEST_CASE("Alltoall brings every part to its rank", "[multi][collectives]") {
  const int size = GENERATE(rank_counts({1, 2, 3, 4, 5, 8}));
  const std::string shape =
      GENERATE("one each", "rank + 1 each", "a rank sends nothing", "a rank receives nothing", "large", "nothing");
  const DataType dtype = GENERATE(DataType::kBool, DataType::kInt16, DataType::kFloat64);
  const std::size_t element = element_size(dtype);
  std::vector<std::string> problems(static_cast<std::size_t>(size));
  run_ranks(size, [&](int rank, GlooBackend& backend) {
    std::string& problem = problems[static_cast<std::size_t>(rank)];
    const Bytes input = parts(shape, rank, size, element, true);
    // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the call is not to write there
    const Bytes before = input;
    const Bytes expected = parts(shape, rank, size, element, false);
    Bytes output(expected.size() + 1, 0xee);
    CollectiveCall call{.op = OpType::kAlltoall, .dtype = dtype, .input = input.data(), .output = output.data()};
    for (int peer = 0; peer < size; ++peer) {
      call.rank_counts.push_back(sent(shape, rank, peer, size));
      call.receive_counts.push_back(sent(shape, peer, rank, size));
    }
    for (int round = 0; round < 3; ++round) problem += run_call(backend, call).message();
    if (output.back() != 0xee) problem += " wrote beyond the end";
    output.pop_back();
    if (output != expected) problem += " wrong output";
    if (input != before) problem += " changed the input";
  });
  INFO(size << " ranks, " << shape << ", " << data_type_name(dtype));
  for (const std::string& problem : problems) CHECK(problem == "");
}

// ---- reducescatter

Counts parts_for(const std::string& shape, int size) {
  Counts counts;
  for (int r = 0; r < size; ++r) {
    if (shape == "equal") counts.push_back(6);
    if (shape == "one more for the first") counts.push_back(r == 0 ? 4 : 3);
    if (shape == "nothing for the last") counts.push_back(r == size - 1 ? 0 : 1);
    if (shape == "large") counts.push_back(r == 0 ? 90007 : 90001);
    if (shape == "very uneven") counts.push_back(r == 0 ? 600011 : r == 1 ? 0 : 5);
    if (shape == "many rounds") counts.push_back(700001 + r);
    if (shape == "nothing") counts.push_back(0);
  }
  return counts;
}

// Small whole numbers: every order of adding or multiplying them gives the same bits.
template <typename T>
std::vector<T> input_of(int rank, std::int64_t count) {
  std::vector<T> input(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < input.size(); ++i) {
    input[i] = static_cast<T>((i * 7 + static_cast<std::size_t>(rank) * 3) % 5 + (i % 11 == 0 ? 1 : 0));
  }
  return input;
}

template <typename T>
void check_reducescatter(int size, const Counts& counts, DataType dtype, ReduceOp op, bool in_place) {
  std::vector<std::string> problems(static_cast<std::size_t>(size));
  std::vector<T> expected = input_of<T>(0, sum(counts));
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<T> next = input_of<T>(rank, sum(counts));
    kernels::reduce(dtype, op, expected.data(), expected.data(), next.data(), sum(counts));
  }
  run_ranks(size, [&](int rank, GlooBackend& backend) {
    std::string& problem = problems[static_cast<std::size_t>(rank)];
    const auto own = static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]);
    const auto before =
        static_cast<std::size_t>(std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0}));
    std::vector<T> input = input_of<T>(rank, sum(counts));
    const std::vector<T> unchanged = input;
    std::vector<T> elsewhere(own + 1, T{99});
    T* const output = in_place ? input.data() + before : elsewhere.data();
    const Status status = run_call(backend, {.op = OpType::kReducescatter,
                                             .dtype = dtype,
                                             .reduce_op = op,
                                             .input = input.data(),
                                             .output = output,
                                             .rank_counts = counts});
    problem += status.message();
    if (!std::equal(output, output + own, expected.begin() + static_cast<std::ptrdiff_t>(before))) problem += " wrong";
    if (!in_place && (elsewhere.back() != T{99} || input != unchanged)) problem += " wrote elsewhere";
  });
  for (const std::string& problem : problems) CHECK(problem == "");
}

TEST_CASE("Reducescatter gives each rank its part of the reduction", "[multi][collectives]") {
  const int size = GENERATE(rank_counts({1, 2, 3, 4, 5, 7, 8}));
  const std::string shape = GENERATE("equal", "one more for the first", "nothing for the last", "large", "very uneven",
                                     "many rounds", "nothing");
  const ReduceOp op = GENERATE(ReduceOp::kSum, ReduceOp::kMax);
  const bool in_place = GENERATE(false, true);
#ifdef HVD_SANITIZED  // 20 times slower: fewer, but still one of each kind
  if (size > 3 && (shape == "many rounds" || op == ReduceOp::kMax || size == 5 || size == 7)) return;
#endif
  INFO(size << " ranks, " << shape << ", " << reduce_op_name(op) << (in_place ? ", in place" : ""));
  check_reducescatter<float>(size, parts_for(shape, size), DataType::kFloat32, op, in_place);
}

TEST_CASE("Reducescatter knows the integer types", "[multi][collectives]") {
  const int size = GENERATE(2, 3, 4);
  const std::string shape = GENERATE("one more for the first", "large");
  const Counts counts = parts_for(shape, size);
  check_reducescatter<std::uint8_t>(size, counts, DataType::kUint8, ReduceOp::kProduct, false);
  check_reducescatter<std::int32_t>(size, counts, DataType::kInt32, ReduceOp::kSum, true);
  check_reducescatter<std::int64_t>(size, counts, DataType::kInt64, ReduceOp::kMin, false);
}

TEST_CASE("Counts that do not fit the ranks are an error, not a wait", "[multi][collectives]") {
  std::vector<Status> results(4);
  run_ranks(2, [&](int rank, GlooBackend& backend) {
    float x = 1;
    float y = 1;
    const OpType op = rank == 0 ? OpType::kAlltoall : OpType::kReducescatter;
    CollectiveCall call{.op = op, .input = &x, .output = &y, .rank_counts = {1}, .receive_counts = {1}};
    results[static_cast<std::size_t>(rank)] = run_call(backend, call);
  });
  CHECK(results[0].code() == StatusCode::kInternal);
  CHECK_THAT(results[0].message(), Catch::Contains("1 counts for 2 ranks"));
  CHECK_THAT(results[1].message(), Catch::Contains("1 counts for 2 ranks"));
}

}  // namespace
}  // namespace hvd::collectives
