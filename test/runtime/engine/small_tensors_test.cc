// Small tensors that the control tree or shared memory reduces come out as those that a backend reduces.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "runtime/collectives/kernels/kernels.h"
#include "test/runtime/engine/session_support.h"
#include "test/support/job_fixture.h"

using namespace hvd;
using namespace hvd::test;

namespace {

constexpr std::int64_t kSmallElements = 7;

// Random elements without NaN and infinity, whose bits no rule tells.
std::vector<std::byte> small_elements(DataType dtype, int rank) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 97 + static_cast<std::uint64_t>(dtype));
  std::vector<std::byte> bytes(kSmallElements * element_size(dtype));
  for (std::size_t at = 0; at < bytes.size(); at += element_size(dtype)) {
    std::uint64_t bits = random();
    const auto real = static_cast<double>(random() % 2001) / 700 - 1.4;
    const auto single = static_cast<float>(real);
    if (dtype == DataType::kBool) bits &= 1;
    if (dtype == DataType::kFloat16 || dtype == DataType::kBfloat16) bits &= 0xbfff;  // below 2
    if (dtype == DataType::kFloat32) std::memcpy(&bits, &single, sizeof(single));
    if (dtype == DataType::kFloat64) std::memcpy(&bits, &real, sizeof(real));
    std::memcpy(bytes.data() + at, &bits, element_size(dtype));
  }
  return bytes;
}

struct SmallCase {
  DataType dtype;
  ReduceOp op;
  double prescale;
  double postscale;
};

std::vector<SmallCase> small_cases() {
  std::vector<SmallCase> all;
  for (int type = 0; type < kDataTypeCount; ++type) {
    const auto dtype = static_cast<DataType>(type);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      if (!kernels::can_reduce(dtype, op == ReduceOp::kAverage ? ReduceOp::kSum : op)) continue;
      all.push_back({dtype, op, 1.0, 1.0});
      if (kernels::can_scale(dtype) && (op == ReduceOp::kSum || op == ReduceOp::kAverage))
        all.push_back({dtype, op, 0.3, 1.7});
    }
  }
  return all;
}

Operation small_allreduce(const SmallCase& c, const std::string& name, std::vector<std::byte>& in,
                          std::vector<std::byte>& out) {
  Operation operation;
  operation.op = OpType::kAllreduce;
  operation.name = name;
  operation.input = {in.data(), {kSmallElements}, c.dtype, kCpuDevice};
  operation.output = out.data();
  operation.reduce_op = c.op;
  operation.prescale = c.prescale;
  operation.postscale = c.postscale;
  return operation;
}

}  // namespace

// Two ranks: the order of two shows in no bit, so the backend that takes the first call, which no cache knows, is the
// reference for the others.
TEST_CASE("Engine: small tensors of every type are reduced to the bits of a backend", "[multi][engine]") {
  const bool shared_memory = GENERATE(true, false);  // else in the tree
  JobFixture job(2);
  Problems problems;
  const auto run = [&](Session& session) {
    const int rank = session.topology().rank;
    for (const SmallCase& c : small_cases()) {
      const std::string name = std::string(data_type_name(c.dtype)) + " " + std::to_string(static_cast<int>(c.op)) +
                               " " + std::to_string(c.prescale);
      std::vector<std::byte> input = small_elements(c.dtype, rank);
      std::vector<std::byte> first(input.size());
      problems.expect_ok(wait(session.enqueue(small_allreduce(c, name, input, first))), name);
      for (int i = 0; i < 2; ++i) {
        std::vector<std::byte> again(input.size());
        const auto handle = session.enqueue(small_allreduce(c, name, input, again));
        problems.expect_ok(wait(handle), name);
        problems.expect(again == first, name + ": another result");
        problems.expect(handle.is_ok() && handle.value()->output_shape() == Shape{kSmallElements}, name + ": shape");
      }
    }
  };
  job.run(run, [&](config::RuntimeConfig& config) { config.shared_memory = shared_memory; });
  for (const std::string& error : job.errors()) CHECK(error == "");
  CHECK(problems.text() == "");
}
