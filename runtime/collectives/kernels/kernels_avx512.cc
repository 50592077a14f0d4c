// Compiled with its own instruction set; see CMakeLists.txt.
#define HVD_KERNEL_TABLE kAvx512Table
#define HVD_KERNEL_NAME "avx512"
#include "runtime/collectives/kernels/kernels_impl.inc"
