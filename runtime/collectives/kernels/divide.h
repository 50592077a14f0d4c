#pragma once

#include <cstdint>

#include "horovod/types.h"

namespace hvd::kernels {

// data[i] = data[i] / divisor, truncated toward zero, exactly: what an integer Average is (contract 01 §1.8). Multiplying
// by 1/divisor in double would turn 49 / 49 into 0. Requires: an integer dtype (not bool), divisor >= 1.
void divide_truncate(DataType dtype, void* data, std::int64_t n, int divisor);

}  // namespace hvd::kernels
