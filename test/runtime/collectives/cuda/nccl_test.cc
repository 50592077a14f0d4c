#include <catch2/catch.hpp>

#include "runtime/collectives/nccl/agreement.h"
#include "runtime/collectives/nccl/communicator.h"
#include "test/support/fake_gpu/fake_nccl.h"

namespace hvd::collectives::nccl {

namespace {

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

MemberFacts member(int version, std::uint8_t gpu) {
  MemberFacts facts;
  facts.can = 1;
  facts.version = version;
  facts.gpu.fill(gpu);
  facts.bus = gpu;
  return facts;
}

std::string of_call(OpType op, DataType dtype, ReduceOp reduction, kernels::Scaling scaling = {},
                    bool can_scale = false) {
  CollectiveCall call;
  call.op = op;
  call.dtype = dtype;
  call.reduce_op = reduction;
  call.scaling = scaling;
  return why_not(call, can_scale);
}

}  // namespace

TEST_CASE("NCCL of 2.18 to 2.32 is taken; one that is missing, older or incomplete is a reason", "[unit][gpu]") {
  for (const int version : {21800, 22304, 22903, 23003, 23203}) {
    fake_nccl_set_version(version);
    CHECK(Library::load(HVD_FAKE_NCCL).value()->version() == version);
  }
  fake_nccl_set_version(21704);
  CHECK(says(Library::load(HVD_FAKE_NCCL).status().message(), "is of version 2.17.4, expected 2.18.0 or later"));
  fake_nccl_set_version(2708);
  CHECK(says(Library::load(HVD_FAKE_NCCL).status().message(), "is of version 2.7.8, expected"));
  fake_nccl_set_version(23203);
  CHECK(says(Library::load("libno_such_nccl.so").status().message(),
             "there is no NCCL: libno_such_nccl.so: cannot open"));
  CHECK(says(Library::load("libm.so.6").status().message(), "libm.so.6 has no function ncclGetVersion (NCCL 2.0.0)"));
}

TEST_CASE("Members agree on NCCL only where all have the same one and GPUs of their own", "[unit][gpu]") {
  const std::vector<int> ranks = {0, 4, 6};
  const std::vector<int> hosts = {0, 0, 0};
  std::vector<MemberFacts> members = {member(23203, 1), member(23203, 2), member(23203, 3)};
  CHECK(why_no_communicator(members, ranks, hosts).empty());
  members[2].gpu = members[1].gpu;
  CHECK(why_no_communicator(members, ranks, hosts) ==
        "rank 4 and rank 6 share a GPU, and not every rank has NCCL_MULTI_RANK_GPU_ENABLE=1");
  for (MemberFacts& one : members) one.shares_gpu = 1;
  CHECK(why_no_communicator(members, ranks, hosts).empty());
  for (MemberFacts& one : members) one.version = 22907;
  CHECK(why_no_communicator(members, ranks, hosts) == "rank 4 and rank 6 share a GPU");
  members[0].version = members[2].version = 23203;
  members[1].version = 21800;
  CHECK(why_no_communicator(members, ranks, hosts) == "rank 4 has NCCL 2.18.0, rank 0 has 2.32.3");
  members[0].refuse(Status::timeout("nobody came"));
  CHECK(why_no_communicator(members, ranks, hosts) == "rank 0: nobody came");
  CHECK(members[2].refuse(Status::internal(std::string(MemberFacts::kMostText - 1, 'x'))));
  CHECK(why_no_communicator(members, ranks, hosts) == "rank 6: " + std::string(MemberFacts::kMostText - 1, 'x'));
  CHECK_FALSE(members[2].refuse(Status::internal(std::string(MemberFacts::kMostText, 'x'))));
  CHECK(why_no_communicator(members, ranks, hosts) ==
        "rank 6: " + std::string(MemberFacts::kMostText - 4, 'x') + "...");
}

TEST_CASE("Slices of a GPU are one GPU to NCCL, which is not asked for what it refuses", "[unit][gpu]") {
  const std::vector<int> ranks = {0, 4, 6};
  const std::vector<int> one_host = {0, 0, 0};
  std::vector<MemberFacts> members = {member(23102, 1), member(23102, 2), member(23102, 3)};
  members[2].bus = members[0].bus;
  CHECK(why_no_communicator(members, ranks, one_host) ==
        "rank 0 and rank 6 have slices (MIG) of one GPU, and not every rank has NCCL_MULTI_RANK_GPU_ENABLE=1");
  CHECK(why_no_communicator(members, ranks, std::vector<int>{0, 0, 1}).empty());  // a place on another host's bus
  for (MemberFacts& one : members) one.shares_gpu = 1;
  CHECK(why_no_communicator(members, ranks, one_host).empty());
  for (MemberFacts& one : members) one.version = 22907;
  CHECK(why_no_communicator(members, ranks, one_host) == "rank 0 and rank 6 have slices (MIG) of one GPU");
  members[2].gpu = members[0].gpu;
  CHECK(why_no_communicator(members, ranks, std::vector<int>{0, 0, 1}) == "rank 0 and rank 6 share a GPU");
}

TEST_CASE("8-bit floats are reduced by NCCL 2.24 on GPUs of compute capability 9.0, else it says why not",
          "[unit][gpu]") {
  const std::vector<int> ranks = {0, 4};
  std::vector<MemberFacts> members = {member(22403, 1), member(22403, 2)};
  members[0].capability = 90;
  members[1].capability = 120;
  CHECK(why_no_float8(members, ranks).empty());
  members[1].capability = 89;
  CHECK(why_no_float8(members, ranks) ==
        "NCCL reduces 8-bit floats on GPUs of compute capability 9.0 or later, and that of rank 4 has 8.9");
  members[0].version = members[1].version = 22304;
  CHECK(why_no_float8(members, ranks) == "NCCL reduces 8-bit floats from version 2.24.0 on, and this is 2.23.4");
}

TEST_CASE("Members that share a GPU are named, with what may be the reason", "[unit][gpu]") {
  const std::vector<int> ranks = {0, 2, 5, 7};
  const std::vector<int> hosts = {0, 0, 0, 1};
  std::vector<MemberFacts> members = {member(23203, 1), member(23203, 2), member(23203, 3), member(23203, 4)};
  for (MemberFacts& one : members) one.sees = 4;
  CHECK(shared_gpus(members, ranks, hosts).empty());
  members[1].gpu = members[2].gpu = members[0].gpu;
  CHECK(shared_gpus(members, ranks, hosts) ==
        "ranks 0, 2 and 5 share the GPU of UUID 01010101-0101-0101-0101-010101010101 and see 4: is "
        "torch.cuda.set_device(hvd.local_rank()) missing, or not the first use of a GPU?");
  for (MemberFacts& one : members) one.sees = 1;
  members[2].sees = 0;  // it has no GPU
  CHECK(shared_gpus(members, ranks, hosts) ==
        "ranks 0 and 2 share the GPU of UUID 01010101-0101-0101-0101-010101010101, because their host has 3 ranks and "
        "they see "
        "1 GPU (CUDA_VISIBLE_DEVICES says which)");
}

TEST_CASE("What NCCL does not do as the host does it, it does not get", "[unit][gpu]") {
  CHECK(of_call(OpType::kAllreduce, DataType::kFloat16, ReduceOp::kSum, {2.0, 0.25}).empty());
  CHECK(of_call(OpType::kAllreduce, DataType::kInt64, ReduceOp::kMax).empty());
  CHECK(of_call(OpType::kAllgather, DataType::kBool, ReduceOp::kSum).empty());
  CHECK(of_call(OpType::kAllreduce, DataType::kInt32, ReduceOp::kSum, {1.0, 1.0, 2}) ==
        "NCCL does not scale int32, and a rank has no kernels for that");
  CHECK(of_call(OpType::kAllreduce, DataType::kInt32, ReduceOp::kSum, {1.0, 1.0, 2}, true).empty());
  CHECK(of_call(OpType::kAllreduce, DataType::kFloat32, ReduceOp::kMax, {2.0, 1.0}, true).empty());
  CHECK(of_call(OpType::kAllreduce, DataType::kBool, ReduceOp::kMax, {}, true) == "NCCL does not reduce bool");
  CHECK(of_call(OpType::kAllreduce, DataType::kFloat32, ReduceOp::kMax, {2.0, 1.0}) ==
        "NCCL scales sums only, and a rank has no kernels for that");
  CHECK(of_call(OpType::kReducescatter, DataType::kInt16, ReduceOp::kSum) == "NCCL does not reduce int16");
  CHECK(of_call(OpType::kAllreduce, DataType::kFloat8E5m2, ReduceOp::kSum).empty());
  CHECK(of_call(OpType::kAllreduce, DataType::kFloat8E5m2, ReduceOp::kSum, {0.5, 1.0}) ==
        "NCCL does not scale float8_e5m2, and a rank has no kernels for that");
  CHECK(of_call(OpType::kAdasum, DataType::kFloat32, ReduceOp::kAdasum) == "NCCL has no Adasum");
}

}  // namespace hvd::collectives::nccl
