#pragma once

#include <memory>
#include <string>

#include "bench/cpp/arms.h"

namespace hvd::bench {

// The arms of ranks on one host that share memory; null when there is none of this name.
std::unique_ptr<Arm> make_shared_arm(const std::string& name, int rank, int size, Shared& shared);

}  // namespace hvd::bench
