#pragma once

#include <memory>
#include <string>

#include "bench/cpp/arms.h"

namespace hvd::bench {

// MPI_Allreduce in place: "open_mpi" or "mpich", whose mpirun must have started this process; null for other names.
// Needs the library alone, no headers.
std::unique_ptr<Arm> make_mpi_arm(const std::string& name);

}  // namespace hvd::bench
