// Compiled with its own instruction set; see CMakeLists.txt.
#define HVD_KERNEL_TABLE kBaselineTable
#define HVD_KERNEL_NAME "baseline"
#include "runtime/collectives/kernels/kernels_impl.inc"
