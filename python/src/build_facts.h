#pragma once

#include <array>
#include <utility>

// What the build has, and what this process finds: asked from Python (register_constants.cc) and from C (c_queries.cc).
namespace hvd::python {

inline constexpr int kHasGloo = 1;
inline constexpr int kHasCuda = 1;
inline constexpr int kHasMpi = 0;
inline constexpr int kHasRocm = 0;
inline constexpr int kHasDdl = 0;
inline constexpr int kHasCcl = 0;

inline constexpr std::array<std::pair<const char*, int>, 6> kBuiltWith = {
    {{"gloo", kHasGloo}, {"cuda", kHasCuda}, {"mpi", kHasMpi}, {"rocm", kHasRocm}, {"ddl", kHasDdl}, {"ccl", kHasCcl}}};

// The version code of the NCCL that is found, such as 23203 for 2.32.3; 0 where there is none.
int found_nccl_version();

}  // namespace hvd::python
