#include <array>
#include <catch2/catch.hpp>
#include <limits>

#include "test/runtime/engine/job_support.h"

using namespace hvd;
using namespace hvd::test;

// Whatever a caller asks for, the answer is a result or an error of the call, the same on every rank, never the end of
// the process.
namespace {

constexpr int kTensorOps = 6;
constexpr std::array<OpType, kTensorOps> kOps = {OpType::kAllreduce, OpType::kAllgather,     OpType::kBroadcast,
                                                 OpType::kAlltoall,  OpType::kReducescatter, OpType::kAdasum};

struct Case {
  OpType op;
  DataType dtype;
  ReduceOp reduce_op;
  double prescale;
  double postscale;

  std::string name() const {
    return std::string(op_type_name(op)) + " " + std::string(data_type_name(dtype)) + " " +
           std::string(reduce_op_name(reduce_op)) + " " + std::to_string(prescale) + " " + std::to_string(postscale);
  }
};

std::vector<Case> every_case() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<double, double>> factors = {{1, 1},         {2, 1},    {1, 0.5},       {0, -1.5},
                                                          {1e300, 1e300}, {kNan, 1}, {1, kInfinity}, {-0.0, 5e-324}};
  std::vector<Case> cases;
  for (const OpType op : kOps) {
    const bool reduces = op == OpType::kAllreduce || op == OpType::kReducescatter || op == OpType::kAdasum;
    for (int dtype = 0; dtype < kDataTypeCount; ++dtype) {
      for (int reduce_op = 0; reduce_op < (reduces ? kReduceOpCount : 1); ++reduce_op) {
        for (const auto& [before, after] : factors) {
          cases.push_back({op, static_cast<DataType>(dtype), static_cast<ReduceOp>(reduce_op), before, after});
        }
      }
    }
  }
  return cases;
}

bool is_float(DataType dtype) {
  return dtype == DataType::kFloat16 || dtype == DataType::kBfloat16 || dtype == DataType::kFloat32 ||
         dtype == DataType::kFloat64 || dtype >= DataType::kFloat8E4m3fn;
}

// What the table of meanings says, in other words than the code's.
StatusCode expected(const Case& c) {
  const bool is_adasum = c.op == OpType::kAdasum || c.reduce_op == ReduceOp::kAdasum;
  const bool is_sum = c.reduce_op == ReduceOp::kAverage || c.reduce_op == ReduceOp::kSum;
  const bool scales = c.prescale != 1.0 || c.postscale != 1.0;
  if (c.op == OpType::kReducescatter && !is_sum) return StatusCode::kAborted;
  if (c.op != OpType::kReducescatter && c.op != OpType::kAllreduce && c.op != OpType::kAdasum) return StatusCode::kOk;
  if (is_adasum) return is_float(c.dtype) ? StatusCode::kOk : StatusCode::kInvalidArgument;
  if (scales && (c.dtype == DataType::kBool || c.dtype == DataType::kUint16)) return StatusCode::kInvalidArgument;
  const bool has_bool = c.reduce_op == ReduceOp::kMin || c.reduce_op == ReduceOp::kMax;
  return c.dtype == DataType::kBool && !has_bool ? StatusCode::kInvalidArgument : StatusCode::kOk;
}

// Memory for a tensor of two rows of three, whatever its type, and for what comes of it.
struct Tensor {
  std::array<std::byte, 48> input{};
  std::array<std::byte, 48> output{};
  std::vector<std::byte> made;
};

Operation operation_of(const Case& c, Tensor& tensor, const std::string& suffix = "") {
  Operation operation;
  operation.op = c.op;
  operation.name = c.name() + suffix;
  operation.input = {tensor.input.data(), {2, 3}, c.dtype, kCpuDevice};
  operation.reduce_op = c.reduce_op;
  operation.prescale = c.prescale;
  operation.postscale = c.postscale;
  operation.root_rank = 0;
  if (c.op == OpType::kAllreduce || c.op == OpType::kAdasum || c.op == OpType::kBroadcast) {
    operation.output = tensor.output.data();
  } else {
    operation.allocate_output = [&tensor, size = element_size(c.dtype)](const Shape& shape) -> Result<void*> {
      tensor.made.resize(static_cast<std::size_t>(num_elements(shape)) * size);
      return static_cast<void*>(tensor.made.data());
    };
  }
  return operation;
}

struct Running {
  Tensor tensor;
  std::vector<HandlePtr> handles;
};

// Each case alone, and in a group with itself. All are in flight together: they also fuse.
void try_everything(Session& session, Problems& problems) {
  const std::vector<Case> cases = every_case();
  std::vector<Running> running(cases.size() * 2);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const StatusCode code = expected(cases[i]);
    Running& one = running[2 * i];
    const auto alone = session.enqueue(operation_of(cases[i], one.tensor));
    problems.expect(alone.status().code() == code, cases[i].name() + ": " + alone.status().to_string());
    if (alone.is_ok()) one.handles.push_back(alone.value());
    Running& other = running[2 * i + 1];
    const auto group = session.enqueue_group({operation_of(cases[i], other.tensor, " of a group")});
    problems.expect(group.status().code() == code, "group of " + cases[i].name() + ": " + group.status().to_string());
    if (group.is_ok()) other.handles = group.value();
  }
  for (std::size_t i = 0; i < running.size(); ++i) {
    for (const HandlePtr& handle : running[i].handles) problems.expect_ok(wait(handle), cases[i / 2].name());
  }
}

}  // namespace

TEST_CASE("Every type, reduction and factor ends in a result or in an error of the call", "[multi][engine]") {
  const int size = GENERATE(1, 2);
  run_job(size, [&](Session& session, Problems& problems) {
    try_everything(session, problems);
    std::vector<float> data = {1, 2};
    problems.expect_ok(wait(session.enqueue(allreduce("after", data))), "after all");
    problems.expect(data[1] == 2.0F * static_cast<float>(size), "wrong sum");
  });
}

TEST_CASE("Codes, memory, splits and groups that mean nothing are refused at the call", "[multi][engine]") {
  auto started = Session::start(config::RuntimeConfig{});
  REQUIRE(started.is_ok());
  Session& session = *started.value();
  Tensor tensor;
  const Case good{OpType::kAllreduce, DataType::kFloat32, ReduceOp::kSum, 1, 1};
  const auto refusal = [&](const std::function<void(Operation&)>& spoil, OpType op = OpType::kAllreduce) {
    Operation operation = operation_of({op, good.dtype, good.reduce_op, 1, 1}, tensor);
    operation.name = "x";
    spoil(operation);
    return wait(session.enqueue(std::move(operation))).to_string();
  };
  CHECK(refusal([](Operation& o) { o.op = static_cast<OpType>(99); }) ==
        "invalid argument: operation \"x\": there is no operation with the code 99; expected 0 to 7");
  CHECK(refusal([](Operation& o) { o.input.dtype = static_cast<DataType>(13); }) ==
        "invalid argument: operation \"x\": there is no element type with the code 13; expected 0 to 12");
  CHECK(refusal([](Operation& o) { o.reduce_op = static_cast<ReduceOp>(255); }) ==
        "invalid argument: operation \"x\": there is no reduction with the code 255; expected 0 to 5");
  CHECK(refusal([](Operation& o) { o.input.data = nullptr; }) ==
        "invalid argument: allreduce \"x\": expected memory for the input of shape [2, 3], got a null pointer");
  CHECK(refusal([](Operation& o) { o.output = nullptr; }, OpType::kBroadcast) ==
        "invalid argument: broadcast \"x\": expected memory for the output of shape [2, 3], got a null pointer");
  CHECK(refusal([](Operation& o) { o.allocate_output = nullptr; }, OpType::kAllgather) ==
        "invalid argument: allgather \"x\": expected a way to allocate the output, got none");
  CHECK(refusal([](Operation& o) {
          o.input = {nullptr, {0, 3}, DataType::kFloat32, kCpuDevice};
          o.output = nullptr;
        }) == "ok");
  CHECK(refusal([](Operation& o) {
          o.input.dtype = DataType::kBool;
          o.reduce_op = ReduceOp::kMax;
          o.prescale = 2;
        }) ==
        "invalid argument: allreduce \"x\": bool tensors cannot be multiplied; expected prescale_factor 1, got 2");
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  CHECK_THAT(refusal([](Operation& o) { o.input.shape = {kHuge, kHuge, 2}; }), Catch::Contains("impossible shape"));

  const auto group = [&](const std::function<void(Operation&)>& spoil) {
    Operation first = operation_of(good, tensor, " first");
    Operation second = operation_of(good, tensor, " second");
    spoil(second);
    return session.enqueue_group({std::move(first), std::move(second)}).status().message();
  };
  CHECK_THAT(group([](Operation& o) { o.op = OpType::kBroadcast; }), Catch::Contains("different operations"));
  CHECK(session.enqueue_group({without_tensor(OpType::kJoin)}).status().message() ==
        "join \"join.noname\": only operations on tensors can be a group");
}

TEST_CASE("Splits whose sum does not fit are refused at the call", "[multi][engine]") {
  run_job(2, [&](Session& session, Problems& problems) {
    Tensor tensor;
    Operation operation = operation_of({OpType::kAlltoall, DataType::kFloat32, ReduceOp::kSum, 1, 1}, tensor);
    operation.splits.assign(2, std::numeric_limits<std::int64_t>::max());
    problems.expect_code(session.enqueue(std::move(operation)).status(), StatusCode::kInvalidArgument, "add up to",
                         "splits");
    problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kBarrier))), "barrier");
  });
}
