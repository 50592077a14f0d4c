# Compiles for arm64 on another machine: Debian's cross compiler over the headers and libraries of a Debian for arm64, the
# folder HVD_ARM64_ROOT or build/arm64-root. scripts/arm64.sh makes one and runs the tests there.
cmake_path(SET hvd_root NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../build/arm64-root")
if(DEFINED ENV{HVD_ARM64_ROOT})
  set(hvd_root "$ENV{HVD_ARM64_ROOT}")
endif()
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT "${hvd_root}")
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
# How ctest runs what it has been given here.
cmake_path(SET hvd_emulate NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../scripts/arm64_run.sh")
set(CMAKE_CROSSCOMPILING_EMULATOR "${hvd_emulate};${hvd_root}")
