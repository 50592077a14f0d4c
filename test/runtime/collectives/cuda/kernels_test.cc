#include "runtime/collectives/cuda/kernels.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cstring>

#include "runtime/collectives/cuda/stream.h"
#include "runtime/collectives/kernels/kernels.h"
#include "test/runtime/collectives/cuda/gpu_sessions.h"

// The launches of our kernels, whose code the fake driver runs on the host, thread by thread.
namespace hvd::collectives::cuda {

namespace {

// True, and says so, where there is nothing to test.
bool has_no_kernels() {
  if (!kernel_image().empty()) return false;
  WARN("nvcc was not there: this build has no kernels for GPUs, and none is tested");
  return true;
}

std::shared_ptr<Stream> stream_on(int gpu) {
  return Stream::make(Device::open(Driver::load(HVD_FAKE_CUDA).value(), gpu).value()).value();
}

void finish(const Stream& stream) { fake_cuda_synchronize(stream.handle()); }

// Ints as the floats with their bits, for tensors of floats.
test::Values of_ints(const std::vector<std::int32_t>& ints) {
  test::Values values;
  for (const std::int32_t one : ints) values.push_back(std::bit_cast<float>(one));
  return values;
}

std::vector<std::int32_t> ints_of(const test::Values& values) {
  std::vector<std::int32_t> ints;
  for (const float one : values) ints.push_back(std::bit_cast<std::int32_t>(one));
  return ints;
}

Operation on_ints(const test::GpuTensor& tensor, void* output, const std::string& name, ReduceOp op) {
  Operation operation = test::on_gpu(OpType::kAllreduce, name, tensor, output, op);
  operation.input.dtype = DataType::kInt32;
  return operation;
}

}  // namespace

// The fat binary is a head of 16 bytes and entries: kind (1: PTX, 2: machine code), two lengths, and at 28 the target.
TEST_CASE("The embedded kernels are there for each target of the build, and as PTX for later ones", "[unit][gpu]") {
  if (has_no_kernels()) return;
  const std::span<const std::uint8_t> image = kernel_image();
  const auto number_at = [&](std::size_t at, auto number) {
    std::memcpy(&number, &image[at], sizeof number);
    return number;
  };
  std::string machine_code;
  std::string ptx;
  for (std::size_t at = 16; at < image.size();) {
    std::string& list = number_at(at, std::uint16_t{}) == 1 ? ptx : machine_code;
    list += (list.empty() ? "sm_" : " sm_") + std::to_string(number_at(at + 28, std::uint32_t{}));
    at += number_at(at + 4, std::uint32_t{}) + number_at(at + 8, std::uint64_t{});
  }
  CHECK(machine_code == HVD_KERNEL_TARGETS);
  CHECK(ptx == "sm_75");
}

TEST_CASE("Copies of any size and place, and zeros, take one launch for 144 of them", "[unit][gpu]") {
  if (has_no_kernels()) return;
  {
    const auto stream = stream_on(0);
    const auto kernels = stream->device()->kernels().value();
    constexpr std::size_t kCopies = 200;
    constexpr std::size_t kSpace = 400;
    const auto from = stream->device()->allocate(kCopies * kSpace + 200000).value();
    const auto to = stream->device()->allocate(kCopies * kSpace + 200000).value();
    auto* const source = static_cast<std::uint8_t*>(from.get());
    auto* const target = static_cast<std::uint8_t*>(to.get());
    for (std::size_t i = 0; i < kCopies * kSpace + 200000; ++i) source[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
    std::memset(target, 0x11, kCopies * kSpace + 200000);
    std::vector<Copy> copies;
    for (std::size_t i = 0; i < kCopies; ++i) {
      const std::size_t shift = i % 4 == 0 ? 0 : i % 4 == 1 ? 4 : i % 17;  // of sixteen, of four and of single bytes
      const std::size_t place = i * kSpace;
      copies.push_back({i % 9 == 5 ? nullptr : source + place, target + place + shift, i * 37 % 331});
    }
    copies.push_back({source + kCopies * kSpace, target + kCopies * kSpace, 199999});  // of several blocks
    const int launches = fake_cuda_calls("cuLaunchKernel");
    REQUIRE(kernels->copy(stream->handle(), copies).is_ok());
    CHECK(fake_cuda_calls("cuLaunchKernel") - launches == 2);
    finish(*stream);
    std::size_t wrong = 0;
    std::vector<std::uint8_t> expected(kCopies * kSpace + 200000, 0x11);
    for (const Copy& copy : copies) {
      const std::size_t place = static_cast<std::size_t>(static_cast<std::uint8_t*>(copy.to) - target);
      for (std::size_t i = 0; i < copy.bytes; ++i) {
        expected[place + i] = copy.from == nullptr ? std::uint8_t{0} : static_cast<const std::uint8_t*>(copy.from)[i];
      }
    }
    for (std::size_t i = 0; i < expected.size(); ++i) wrong += expected[i] != target[i] ? 1 : 0;
    CHECK(wrong == 0);
    fake_cuda_fail("cuLaunchKernel", 0, 700);
    CHECK(kernels->copy(stream->handle(), copies).message() == "cuLaunchKernel of hvd_copy: error 700");
  }
  test::expect_nothing_left();
}

TEST_CASE("Our kernels scale every type that NCCL reduces with the bits of the host", "[unit][gpu]") {
  if (has_no_kernels()) return;
  {
    const auto stream = stream_on(1);
    const auto kernels = stream->device()->kernels().value();
    constexpr std::int64_t kCount = 65536;  // each 16-bit pattern once
    const auto memory = stream->device()->allocate(8 * kCount).value();
    std::vector<std::uint8_t> values(8 * kCount);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>((i * 2654435761U) >> 13);
    for (std::size_t i = 0; i < kCount; ++i) {
      // No NaN, whose bits are not specified: exponents of all ones become others.
      for (const std::size_t last : {2 * i + 1}) values[last] &= static_cast<std::uint8_t>(i % 2 == 0 ? 0xBF : 0x3F);
    }
    for (const DataType dtype : {DataType::kUint8, DataType::kInt8, DataType::kInt32, DataType::kInt64,
                                 DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64,
                                 DataType::kFloat8E4m3fn, DataType::kFloat8E5m2}) {
      const bool is_integer = dtype < DataType::kFloat16;
      for (const auto& [factor, divisor] : {std::pair(0.3, 1), std::pair(-2.5, 1), std::pair(1.0, 3)}) {
        if (divisor != 1 && !is_integer) continue;
        INFO(data_type_name(dtype) << " " << factor << " " << divisor);
        const std::size_t bytes = kCount * element_size(dtype);
        std::memcpy(memory.get(), values.data(), bytes);
        const Copy in_place{memory.get(), memory.get(), bytes};
        REQUIRE(kernels->scaled_copy(stream->handle(), {&in_place, 1}, {dtype, factor, divisor}).is_ok());
        finish(*stream);
        std::vector<std::uint8_t> expected(bytes);
        kernels::scale_result(dtype, expected.data(), values.data(), kCount, {1.0, factor, divisor});
        CHECK(std::memcmp(memory.get(), expected.data(), bytes) == 0);
      }
    }
  }
  test::expect_nothing_left();
}

TEST_CASE("What NCCL does not scale our kernels do, where all members have them", "[multi][gpu]") {
  if (has_no_kernels()) return;
  const bool one_lacks_them = GENERATE(false, true);
  const int before = fake_nccl_calls("ncclAllReduce");
  if (one_lacks_them) fake_cuda_fail("cuModuleLoadData", 0, 209);
  test::run_on_gpus(2, test::use_fake_nccl, [&](Session& session, test::Problems& problems) {
    using test::wait;
    const int rank = session.topology().rank;
    test::FrameworkStream stream(rank);
    test::GpuTensor numbers(stream, of_ints({3 + rank, -3 - rank, 100}));
    test::GpuTensor average(stream, 3);
    test::GpuTensor product(stream, of_ints({3, -5}));
    test::GpuTensor largest(stream, test::Values(2, static_cast<float>(rank)));
    test::GpuTensor other(stream, test::Values(5, -1.0F));
    test::GpuTensor rows(stream, of_ints({8, 16, 2 + rank, 4}));
    test::CoreOutput part;
    Operation scaled = on_ints(product, product.data(), "product", ReduceOp::kProduct);
    scaled.prescale = 1.5;  // 4 and -7
    scaled.postscale = 10;
    Operation first = test::on_gpu(OpType::kAllreduce, "max", largest, largest.data(), ReduceOp::kMax);
    first.prescale = 2.0;
    first.postscale = 0.5;
    Operation second = test::on_gpu(OpType::kAllreduce, "other", other, other.data(), ReduceOp::kMax);
    second.prescale = 2.0;
    second.postscale = 0.5;
    Operation scatter = on_ints(rows, nullptr, "rows", ReduceOp::kAverage);
    scatter.op = OpType::kReducescatter;
    part.take_from(session, rank, scatter);
    auto handles = session.enqueue_group({first, second}).value();
    for (const Operation& one : {on_ints(numbers, average.data(), "average", ReduceOp::kAverage), scaled, scatter})
      handles.push_back(session.enqueue(one).value());
    for (const HandlePtr& handle : handles) problems.expect_ok(wait(handle), "scaled");
    problems.expect(ints_of(average.values()) == std::vector{3, -3, 100}, "average");
    problems.expect(ints_of(product.values()) == std::vector{160, 490}, "product");
    problems.expect(largest.values() == test::Values(2, 1.0F), "max");
    problems.expect(other.values() == test::Values(5, -1.0F), "other");
    problems.expect(ints_of(part.values()) == (rank == 0 ? std::vector{8, 16} : std::vector{2, 4}), "rows");
  });
  CHECK((fake_nccl_calls("ncclAllReduce") > before) != one_lacks_them);
}

TEST_CASE("A list is packed with one launch, and with copies where that is switched off", "[multi][gpu]") {
  if (has_no_kernels()) return;
  const bool batched = GENERATE(true, false);
  const int launches = fake_cuda_calls("cuLaunchKernel");
  const auto configure = [&](config::RuntimeConfig& config) {
    test::use_fake_nccl(config);
    config.batch_copies = batched;
  };
  test::run_on_gpus(2, configure, [&](Session& session, test::Problems& problems) {
    test::FrameworkStream stream(session.topology().rank);
    std::vector<std::unique_ptr<test::GpuTensor>> tensors;
    std::vector<Operation> list;
    for (std::size_t i = 0; i < 20; ++i) {
      tensors.push_back(std::make_unique<test::GpuTensor>(stream, test::Values(i + 1, static_cast<float>(i))));
      list.push_back(test::on_gpu(OpType::kAllreduce, std::to_string(i), *tensors[i], tensors[i]->data()));
    }
    const auto handles = session.enqueue_group(std::move(list)).value();
    for (const HandlePtr& handle : handles) problems.expect_ok(test::wait(handle), "list");
    for (std::size_t i = 0; i < 20; ++i) {
      problems.expect(tensors[i]->values() == test::Values(i + 1, static_cast<float>(2 * i)), "a tensor");
    }
  });
  CHECK(fake_cuda_calls("cuLaunchKernel") - launches == (batched ? 4 : 0));  // in and out on each rank
}

}  // namespace hvd::collectives::cuda
