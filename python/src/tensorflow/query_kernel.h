#pragma once

#include "python/src/tensorflow/c_api.h"

namespace hvd::tensorflow {

// An op without inputs that gives an int32 scalar: what the session says at the moment it runs.
struct QueryFunctions {
  CreateFn create;
  ComputeFn compute;
  DeleteFn destroy;
};

QueryFunctions size_kernel();
QueryFunctions process_set_included_kernel();
QueryFunctions local_size_kernel();
QueryFunctions rank_kernel();
QueryFunctions local_rank_kernel();

}  // namespace hvd::tensorflow
