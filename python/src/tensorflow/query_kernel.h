#pragma once

#include <cstdint>

#include "horovod/status.h"
#include "python/src/tensorflow/c_api.h"

namespace hvd::tensorflow {

// An op without inputs that gives an int32 scalar: what the session says at the moment it runs.
struct QueryFunctions {
  CreateFn create;
  ComputeFn compute;
  DeleteFn destroy;
};

// What the ops say. Those without a process set ignore it. Any thread, without the GIL.
using QueryAnswer = Result<std::int32_t> (*)(std::int32_t process_set);
Result<std::int32_t> answer_size(std::int32_t process_set);
Result<std::int32_t> answer_process_set_included(std::int32_t process_set);
Result<std::int32_t> answer_local_size(std::int32_t);
Result<std::int32_t> answer_rank(std::int32_t);
Result<std::int32_t> answer_local_rank(std::int32_t);

QueryFunctions size_kernel();
QueryFunctions process_set_included_kernel();
QueryFunctions local_size_kernel();
QueryFunctions rank_kernel();
QueryFunctions local_rank_kernel();

}  // namespace hvd::tensorflow
