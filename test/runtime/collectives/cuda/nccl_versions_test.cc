#include <algorithm>
#include <bit>
#include <cstdlib>

#include "runtime/collectives/cuda/kernels.h"
#include "test/runtime/collectives/cuda/gpu_sessions.h"

// What is used of NCCL only where its version has it: memory that it reaches directly, several ids, several ranks on a
// GPU.
using namespace hvd;
using namespace hvd::test;

namespace {

// The version that NCCL says it is, and whether GPUs reach each other, while this lives.
struct NcclOf {
  explicit NcclOf(int version, bool windows = true) {
    fake_nccl_set_version(version);
    fake_nccl_set_windows(windows ? 1 : 0);
  }
  ~NcclOf() {
    fake_nccl_set_version(23203);
    fake_nccl_set_windows(1);
  }
  NcclOf(const NcclOf&) = delete;
  NcclOf& operator=(const NcclOf&) = delete;
};

}  // namespace

TEST_CASE("Lists are packed in memory that NCCL reaches directly, as its version can", "[multi][gpu]") {
  struct Case {
    int version;
    bool reach_each_other;
    bool switched_on;
    int pieces;  // on each of two ranks
    int registrations;
    int windows;
  };
  const Case now =
      GENERATE(Case{21800, true, true, 0, 0, 0}, Case{21900, true, true, 2, 4, 0}, Case{22700, false, true, 2, 4, 4},
               Case{23203, true, true, 2, 0, 4}, Case{23203, true, false, 0, 0, 0});
  const NcclOf nccl(now.version, now.reach_each_other);
  const CallsOf pieces("ncclMemAlloc");
  const CallsOf registrations("ncclCommRegister");
  const CallsOf windows("ncclCommWindowRegister");
  const auto configure = [&](config::RuntimeConfig& config) {
    use_fake_nccl(config);
    config.nccl_register = now.switched_on;
  };
  run_on_gpus(2, configure, [&](Session& session, Problems& problems) {
    // The second list fits where the first was, the third needs more.
    const int rank = session.topology().rank;
    sum_list(session, problems, rank, 100);
    sum_list(session, problems, rank, 5000);
    sum_list(session, problems, rank, 10000, 60);
    for (int i = 0; i < 250; ++i) sum_list(session, problems, rank, 40);
  });
  CHECK(pieces.now() == 2 * now.pieces);
  CHECK(registrations.now() == now.registrations);
  CHECK(windows.now() == now.windows);
}

TEST_CASE("Without memory for it on one rank lists are packed in other memory on all", "[multi][gpu]") {
  fake_nccl_fail("ncclMemAlloc", 1, 1);
  const CallsOf windows("ncclCommWindowRegister");
  run_on_gpus(2, use_fake_nccl, [&](Session& session, Problems& problems) {
    for (const std::size_t count : {100U, 10U}) sum_list(session, problems, session.topology().rank, count);
  });
  CHECK(windows.now() == 0);
}

TEST_CASE("Where NCCL refuses memory of one rank, all begin anew without", "[multi][gpu]") {
  const bool has_windows = GENERATE(true, false);
  const NcclOf nccl(has_windows ? 23203 : 22000);
  const char* const function = has_windows ? "ncclCommWindowRegister" : "ncclCommRegister";
  fake_nccl_fail(function, 1, 2);
  const CallsOf registrations(function);
  const CallsOf communicators("ncclCommInitRankConfig");
  run_on_gpus(2, use_fake_nccl, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream stream(rank);
    GpuTensor before(stream, Values(3, 1.0F));
    const auto still_runs = session.enqueue(on_gpu(OpType::kAllreduce, "before", before, before.data()));
    for (const std::size_t count : {100U, 5000U}) sum_list(session, problems, rank, count);
    problems.expect_ok(wait(still_runs), "before");
    problems.expect(before.values() == Values(3, 2.0F), "what was under way");
  });
  CHECK(registrations.now() == 2);
  CHECK(communicators.now() == 4);
}

TEST_CASE("Where one rank is told not to register memory, none does", "[multi][gpu]") {
  const CallsOf memory("ncclMemAlloc");
  const auto configure = [](config::RuntimeConfig& config) {
    use_fake_nccl(config);
    config.nccl_register = config.rank == 0;
  };
  run_on_gpus(2, configure, [&](Session& session, Problems& problems) {
    for (const std::size_t count : {10U, 100U}) sum_list(session, problems, session.topology().rank, count);
  });
  CHECK(memory.now() == 0);
}

TEST_CASE("Many ranks meet by several ids, where NCCL takes them", "[multi][gpu]") {
  const int version = GENERATE(22200, 22300);
  const NcclOf nccl(version);
  const CallsOf scalable("ncclCommInitRankScalable");
  const CallsOf ids("ncclGetUniqueId");
  const auto configure = [](config::RuntimeConfig& config) {
    use_fake_nccl(config);
    config.nccl_ranks_per_id = 2;
  };
  run_on_gpus(3, configure,
              [](Session& session, Problems& problems) { sum_list(session, problems, session.topology().rank, 10); });
  CHECK(scalable.now() == (version >= 22300 ? 3 : 0));
  CHECK(ids.now() == (version >= 22300 ? 2 : 1));
}

// Slices (MIG) of a GPU have UUIDs of their own, and are one GPU to NCCL all the same.
TEST_CASE("Ranks on one GPU, or on slices of one, use NCCL where it takes them, and is told to by all",
          "[multi][gpu]") {
  const int version = GENERATE(22907, 23003, 23102);
  const bool all_say = GENERATE(true, false);
  const bool has_slices = GENERATE(true, false);
  const bool is_used = version >= 23003 && all_say;
  const NcclOf nccl(version);
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  const CallsOf reductions("ncclAllReduce");
  const CallsOf opened("ncclCommInitRankConfig");
  const auto configure = [&](config::RuntimeConfig& config) {
    use_fake_nccl(config);
    config.nccl_shares_gpu = all_say || config.rank == 0;
  };
  fake_cuda_set_slices(has_slices ? 1 : 0);
  run_on_gpus(2, configure, [&](Session& session, Problems& problems) {
    sum_list(session, problems, has_slices ? session.topology().rank : 0, 10);
  });
  fake_cuda_set_slices(0);
  ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  INFO(version << " " << all_say << " " << has_slices);
  CHECK((reductions.now() > 0) == is_used);
  CHECK(opened.now() == (is_used ? 2 : 0));  // NCCL is not asked for what it refuses
}

TEST_CASE("8-bit floats are moved by any NCCL, and reduced by it where it can, else through the host", "[multi][gpu]") {
  struct Case {
    int version;
    int capability;
    bool by_nccl;
  };
  const Case c = GENERATE(Case{21800, 90, false}, Case{22304, 90, false}, Case{22403, 89, false}, Case{22403, 90, true},
                          Case{23203, 120, true});
  const DataType dtype = GENERATE(DataType::kFloat8E4m3fn, DataType::kFloat8E5m2);
  const bool is_e4m3 = dtype == DataType::kFloat8E4m3fn;
  const std::uint8_t one = is_e4m3 ? 0x38 : 0x3c;
  const std::uint8_t one_and_half = is_e4m3 ? 0x3c : 0x3e;
  const std::uint8_t two = 0x40;
  const std::uint8_t three = is_e4m3 ? 0x44 : 0x42;
  const std::uint8_t six = is_e4m3 ? 0x4c : 0x46;
  INFO(c.version << " " << c.capability << " " << data_type_name(dtype));
  const NcclOf nccl(c.version);
  fake_cuda_set_capability(c.capability);
  const CallsOf sums("ncclAllReduce");
  const CallsOf parts("ncclReduceScatter");
  const CallsOf gathers("ncclAllGather");
  run_on_gpus(2, use_fake_nccl, [&](Session& session, Problems& problems) {
    FrameworkStream stream(session.topology().rank);
    const auto of_bytes = [&](std::uint8_t each) { return Values(1, std::bit_cast<float>(each * 0x01010101U)); };
    const auto is = [&](const Values& values, std::uint8_t each) {
      return std::bit_cast<std::uint32_t>(values.at(0)) == each * 0x01010101U;
    };
    const GpuTensor sum(stream, of_bytes(three));
    const GpuTensor average(stream, of_bytes(session.topology().rank == 0 ? one : two));
    const GpuTensor rows(stream, of_bytes(one));
    const GpuTensor moved(stream, of_bytes(two));
    CoreOutput part;
    CoreOutput all;
    const auto eight = [&](OpType op, const char* name, const GpuTensor& tensor, void* output, ReduceOp reduce) {
      Operation operation = on_gpu(op, name, tensor, output, reduce);
      operation.input.dtype = dtype;
      operation.input.shape = {4};
      return operation;
    };
    Operation scatter = eight(OpType::kReducescatter, "part", rows, nullptr, ReduceOp::kSum);
    part.take_from(session, stream.device(), scatter);
    Operation gather = eight(OpType::kAllgather, "all", moved, nullptr, ReduceOp::kSum);
    all.take_from(session, stream.device(), gather);
    const std::vector<Operation> operations = {
        eight(OpType::kAllreduce, "sum", sum, sum.data(), ReduceOp::kSum),
        eight(OpType::kAllreduce, "average", average, average.data(), ReduceOp::kAverage), scatter, gather};
    for (const Operation& operation : operations) {
      problems.expect_ok(wait(session.enqueue(operation)), operation.name);
    }
    problems.expect(is(sum.values(), six), "sum");
    problems.expect(is(average.values(), one_and_half), "average");
    const auto all_are = [](const CoreOutput& output, std::size_t count, std::uint8_t each) {
      const auto* begin = static_cast<const std::uint8_t*>(output.memory.get());
      return output.count == count && std::all_of(begin, begin + count, [&](std::uint8_t b) { return b == each; });
    };
    problems.expect(all_are(part, 2, two), "part");
    problems.expect(all_are(all, 8, two), "all");
  });
  fake_cuda_set_capability(90);
  // An average is scaled by kernels of our own, where the build has them.
  const int reductions = collectives::cuda::kernel_image().empty() ? 2 : 4;
  CHECK(sums.now() == (c.by_nccl ? reductions : 0));
  CHECK(parts.now() == (c.by_nccl ? 2 : 0));
  CHECK(gathers.now() == 2);
}
