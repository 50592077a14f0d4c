#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "horovod/types.h"
#include "python/src/tensorflow/c_api.h"

namespace hvd::tensorflow {

// What a collective's node says, read once when its kernel is made. Immutable afterwards; kernels run concurrently.
struct Attributes {
  OpType op = OpType::kAllreduce;
  bool is_grouped = false;
  std::string name;  // on the wire
  std::int32_t process_set = kGlobalProcessSet;
  ReduceOp reduce_op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int root_rank = -1;
};

// Empty when the node is wrong; TensorFlow knows why then.
std::optional<Attributes> read_attributes(TF_OpKernelConstruction* construction, OpType op, bool is_grouped);
// An attribute `process_set_id` alone; empty as above.
std::optional<std::int32_t> read_process_set(TF_OpKernelConstruction* construction);

}  // namespace hvd::tensorflow
