// Compiled with its own instruction set; see CMakeLists.txt.
#define HVD_KERNEL_TABLE kAvx2Table
#define HVD_KERNEL_NAME "avx2"
#include "runtime/collectives/kernels/kernels_impl.inc"
