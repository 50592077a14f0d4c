#include <random>

#include "runtime/collectives/cuda/kernels.h"
#include "test/runtime/collectives/cuda/gpu_sessions.h"
#include "test/runtime/collectives/kernels/reference.h"

// Every type that docs/design/gpu.md gives to NCCL, in every reduction, beside what the host makes of the same numbers.
using namespace hvd;
using namespace hvd::test;
namespace reference = hvd::kernels::reference;

namespace {

struct Reduction {
  const char* name;
  ReduceOp op;
  double prescale = 1.0;
  double postscale = 1.0;
  bool is_scaled() const { return op == ReduceOp::kAverage || prescale != 1.0 || postscale != 1.0; }
};
// Powers of two, so that it is the same number wherever in a sum they are multiplied.
constexpr Reduction kReductions[] = {
    {"sum", ReduceOp::kSum}, {"average", ReduceOp::kAverage}, {"scaled", ReduceOp::kSum, 0.5, 4.0},
    {"min", ReduceOp::kMin}, {"max", ReduceOp::kMax},         {"product", ReduceOp::kProduct}};

constexpr bool is_claimed(DataType dtype) {
  return dtype != DataType::kBool && dtype != DataType::kInt16 && dtype != DataType::kUint16 &&
         dtype != DataType::kFloat8E4m3fn && dtype != DataType::kFloat8E5m2;
}

// Floats that sums and products round; integers that they wrap.
template <typename T>
std::vector<T> numbers(int rank) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 1);
  std::vector<T> values(200);
  for (T& value : values) {
    const std::uint64_t bits = random();
    const double real = static_cast<double>(static_cast<std::int64_t>(bits)) * 0x1p-60;
    if constexpr (reference::kIsHalf<T>) {
      value = T::of(real);
    } else if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>(real);
    } else {
      std::memcpy(&value, &bits, sizeof value);
    }
  }
  return values;
}

// An averaged or scaled int64 goes through double, where the largest lose their end.
template <>
std::vector<std::int64_t> numbers(int rank) {
  std::vector<std::int64_t> values;
  for (const std::int32_t value : numbers<std::int32_t>(rank)) values.push_back(std::int64_t{value} * 1000);
  return values;
}

Operation reduction(const Reduction& how, DataType dtype, void* data, std::size_t count, const std::string& where) {
  Operation operation;
  operation.op = OpType::kAllreduce;
  operation.name = std::string(how.name) + " of " + std::string(data_type_name(dtype)) + where;
  operation.input = {data, {static_cast<std::int64_t>(count)}, dtype, kCpuDevice};
  operation.output = data;
  operation.reduce_op = how.op;
  operation.prescale = how.prescale;
  operation.postscale = how.postscale;
  return operation;
}

template <typename T>
void reduce_on_both(Session& session, Problems& problems, DataType dtype, const Reduction& how) {
  const int rank = session.topology().rank;
  std::vector<T> on_host = numbers<T>(rank);
  const std::size_t bytes = on_host.size() * sizeof(T);
  FrameworkStream stream(rank);
  const std::shared_ptr<void> on_gpu = stream.memory(bytes);
  std::memcpy(on_gpu.get(), on_host.data(), bytes);
  Operation device = reduction(how, dtype, on_gpu.get(), on_host.size(), " on a GPU");
  device.input.device = rank;
  device.stream = stream.get();
  device.keep_alive = on_gpu;
  problems.expect_ok(wait(session.enqueue(device)), device.name);
  const Operation host = reduction(how, dtype, on_host.data(), on_host.size(), "");
  problems.expect_ok(wait(session.enqueue(host)), host.name);
  const auto* result = static_cast<const T*>(on_gpu.get());
  std::size_t differ = 0;
  for (std::size_t i = 0; i < on_host.size(); ++i) differ += reference::same(result[i], on_host[i]) ? 0 : 1;
  problems.expect(differ == 0, device.name + ": " + std::to_string(differ) + " numbers are not the host's");
}

// What is fused shows in no bit, though NCCL scales a tensor that is alone, and our kernels those of a list.
template <typename T>
void reduce_alone_and_in_list(Session& session, Problems& problems, DataType dtype) {
  constexpr Reduction kThird{"third", ReduceOp::kSum, 1.0 / 3};
  const int rank = session.topology().rank;
  FrameworkStream stream(rank);
  const std::vector<T> own = numbers<T>(rank);
  const auto one = [&](const std::string& where) {
    const std::shared_ptr<void> memory = stream.memory(own.size() * sizeof(T));
    std::memcpy(memory.get(), own.data(), own.size() * sizeof(T));
    Operation operation = reduction(kThird, dtype, memory.get(), own.size(), where);
    operation.input.device = rank;
    operation.stream = stream.get();
    operation.keep_alive = memory;
    return operation;
  };
  const Operation alone = one(" alone");
  problems.expect_ok(wait(session.enqueue(alone)), alone.name);
  const std::vector<Operation> list = {one(" first"), one(" second")};
  const auto handles = session.enqueue_group(list);
  problems.expect_ok(handles.status(), "a list");
  for (const HandlePtr& handle : handles.value()) problems.expect_ok(wait(handle), "a list");
  for (const Operation& each : list) {
    problems.expect(std::memcmp(each.output, alone.output, own.size() * sizeof(T)) == 0, each.name);
  }
}

}  // namespace

TEST_CASE("A scaled tensor has the same bits alone and in a list", "[multi][gpu]") {
  run_on_gpus(2, use_fake_nccl, [&](Session& session, Problems& problems) {
    reference::for_each_type([&]<typename T>(T, DataType dtype) {
      if constexpr (reference::kIsHalf<T> || std::is_floating_point_v<T>) {
        if (is_claimed(dtype)) reduce_alone_and_in_list<T>(session, problems, dtype);
      }
    });
  });
}

TEST_CASE("NCCL reduces every type that it has in every way as the host does", "[multi][gpu]") {
  const CallsOf on_nccl("ncclAllReduce");
  const CallsOf multiplied("ncclRedOpCreatePreMulSum");
  const int pinned = fake_cuda_calls("cuMemHostAlloc");
  int reductions = 0;
  int through_the_host = 0;
  int scaled_by_nccl = 0;
  reference::for_each_type([&]<typename T>(T, DataType dtype) {
    if (!is_claimed(dtype)) return;
    for (const Reduction& how : kReductions) {
      ++reductions;
      if (how.is_scaled() && std::is_integral_v<T> && collectives::cuda::kernel_image().empty()) ++through_the_host;
      // An average by half is NCCL's own.
      if (how.prescale != 1.0 && !std::is_integral_v<T>) ++scaled_by_nccl;
    }
  });
  CHECK(reductions == 8 * 6);
  run_on_gpus(2, use_fake_nccl, [&](Session& session, Problems& problems) {
    reference::for_each_type([&]<typename T>(T, DataType dtype) {
      if constexpr (!std::is_same_v<T, reference::Bool>) {
        for (const Reduction& how : kReductions) {
          if (is_claimed(dtype)) reduce_on_both<T>(session, problems, dtype, how);
        }
      }
    });
  });
  CHECK(on_nccl.now() == 2 * (reductions - through_the_host));
  CHECK(multiplied.now() == 2 * scaled_by_nccl);
  CHECK((fake_cuda_calls("cuMemHostAlloc") == pinned) == (through_the_host == 0));
}
