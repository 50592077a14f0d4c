#include <unistd.h>

#include "horovod/types.h"
#include "python/src/build_facts.h"
#include "python/src/published_session.h"

// Horovod's functions for programs that call the library itself, by ctypes or from C++ (docs/differences.md, row 138).
// Each answers what the Python function of its name does, and -1 where that raises ValueError. All are int, also those
// that say yes or no, so that a caller may take them for either. Any thread may call, with Python's lock or without.

#define HVD_C_QUERY extern "C" __attribute__((visibility("default"))) int

namespace hvd::python {

namespace {

constexpr int kNoAnswer = -1;

}  // namespace

// A session of several ranks has numbers as long as it lasts; so has a child that was forked from one, as in Python.
// The numbers of a world of one remain in its child, which may call init().
HVD_C_QUERY horovod_is_initialized() {
  const PublishedNumbers& numbers = published_numbers();
  return numbers.size > 1 || numbers.process == ::getpid() ? 1 : 0;
}

HVD_C_QUERY horovod_rank() { return published_numbers().rank; }
HVD_C_QUERY horovod_size() { return published_numbers().size; }
HVD_C_QUERY horovod_local_rank() { return published_numbers().local_rank; }
HVD_C_QUERY horovod_local_size() { return published_numbers().local_size; }
HVD_C_QUERY horovod_cross_rank() { return published_numbers().cross_rank; }
HVD_C_QUERY horovod_cross_size() { return published_numbers().cross_size; }
HVD_C_QUERY horovod_is_homogeneous() { return published_numbers().is_homogeneous; }

HVD_C_QUERY horovod_mpi_threads_supported() { return kNoAnswer; }
HVD_C_QUERY horovod_mpi_enabled() { return kHasMpi; }
HVD_C_QUERY horovod_mpi_built() { return kHasMpi; }
HVD_C_QUERY horovod_gloo_enabled() { return kHasGloo; }
HVD_C_QUERY horovod_gloo_built() { return kHasGloo; }
HVD_C_QUERY horovod_cuda_built() { return kHasCuda; }
HVD_C_QUERY horovod_rocm_built() { return kHasRocm; }
HVD_C_QUERY horovod_ddl_built() { return kHasDdl; }
HVD_C_QUERY horovod_ccl_built() { return kHasCcl; }

// No exception leaves here, for the caller may be C: memory may be short.
HVD_C_QUERY horovod_nccl_built() {
  try {
    return found_nccl_version();
  } catch (...) {
    return 0;
  }
}

HVD_C_QUERY horovod_reduce_op_average() { return static_cast<int>(ReduceOp::kAverage); }
HVD_C_QUERY horovod_reduce_op_sum() { return static_cast<int>(ReduceOp::kSum); }
HVD_C_QUERY horovod_reduce_op_adasum() { return static_cast<int>(ReduceOp::kAdasum); }
HVD_C_QUERY horovod_reduce_op_min() { return static_cast<int>(ReduceOp::kMin); }
HVD_C_QUERY horovod_reduce_op_max() { return static_cast<int>(ReduceOp::kMax); }
HVD_C_QUERY horovod_reduce_op_product() { return static_cast<int>(ReduceOp::kProduct); }

}  // namespace hvd::python

#undef HVD_C_QUERY
