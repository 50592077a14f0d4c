#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "runtime/base/status.h"

namespace hvd::collectives::nccl {

// The part of NCCL that is used here, declared by hand, so that neither its header nor CUDA is needed to build.
// ncclComm_t is a pointer; results, types and reductions are ints.
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html
inline constexpr int kSuccess = 0;
inline constexpr int kInProgress = 7;
inline constexpr int kScalarOnHost = 1;     // ncclScalarHostImmediate
inline constexpr int kSymmetricWindow = 1;  // NCCL_WIN_COLL_SYMMETRIC
inline constexpr int kUndefined = -2147483647 - 1;
struct UniqueId {
  std::array<char, 128> bytes;
};
enum class Type : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8E4m3 = 10,
  kFloat8E5m2 = 11
};
enum class Reduction : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kAverage = 4 };
// ncclConfig_t of 2.18, which later versions take for what it says it is.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  int cga_cluster_size = kUndefined;
  int least_ctas = kUndefined;
  int most_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int padding = kUndefined;  // a field of later versions, which copy as much as `size` says
};

// Every function with the name and version under which NCCL exports it: library.cc.
struct Calls {
  int (*version)(int* version) = nullptr;
  const char* (*error_text)(int result) = nullptr;
  const char* (*last_error)(void* comm) = nullptr;
  int (*unique_id)(UniqueId* id) = nullptr;
  int (*init)(void** comm, int size, UniqueId id, int rank, Config* config) = nullptr;
  int (*finalize)(void* comm) = nullptr;
  int (*destroy)(void* comm) = nullptr;
  int (*abort)(void* comm) = nullptr;
  int (*async_error)(void* comm, int* result) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_reduce)(const void* in, void* out, std::size_t n, Type, int reduction, void* comm, void* stream) = nullptr;
  int (*reduce)(const void* in, void* out, std::size_t n, Type, int reduction, int root, void* comm,
                void* stream) = nullptr;
  int (*reduce_scatter)(const void* in, void* out, std::size_t n, Type, int reduction, void* comm,
                        void* stream) = nullptr;
  int (*broadcast)(const void* in, void* out, std::size_t n, Type, int root, void* comm, void* stream) = nullptr;
  int (*all_gather)(const void* in, void* out, std::size_t n, Type, void* comm, void* stream) = nullptr;
  int (*send)(const void* in, std::size_t n, Type, int peer, void* comm, void* stream) = nullptr;
  int (*receive)(void* out, std::size_t n, Type, int peer, void* comm, void* stream) = nullptr;
  int (*make_pre_mul_sum)(int* reduction, void* scalar, Type, int residence, void* comm) = nullptr;
  int (*end_reduction)(int reduction, void* comm) = nullptr;
  // Null where NCCL is older.
  int (*allocate)(void** memory, std::size_t bytes) = nullptr;
  int (*free)(void* memory) = nullptr;
  int (*register_memory)(void* comm, void* memory, std::size_t bytes, void** registration) = nullptr;
  int (*deregister_memory)(void* comm, void* registration) = nullptr;
  int (*init_scalable)(void** comm, int size, int rank, int ids, UniqueId* id, Config* config) = nullptr;
  int (*register_window)(void* comm, void* memory, std::size_t bytes, void** window, int flags) = nullptr;
  int (*deregister_window)(void* comm, void* window) = nullptr;
};

// NCCL as this process finds it. Immutable and thread-safe; never unloaded.
class Library {
 public:
  // `file`: the one to take. Empty: the one that a framework has loaded, else that of the package nvidia-nccl beside
  // this one, else the system's. kPrecondition, in words, when there is none or it is too old.
  static Result<std::shared_ptr<const Library>> load(const std::string& file);

  const Calls& calls() const { return calls_; }
  int version() const { return version_; }  // 23203 is 2.32.3
  const std::string& file() const { return file_; }
  // OK for kSuccess and kInProgress; else with NCCL's own words. `comm` may be null.
  Status check(int result, const std::string& what, void* comm) const;

 private:
  Library() = default;

  Calls calls_;
  int version_ = 0;
  std::string file_;
};

std::string version_text(int version);  // "2.32.3"

inline constexpr int kTakesRanksOnOneGpu = 23003;  // with NCCL_MULTI_RANK_GPU_ENABLE=1
inline constexpr int kReducesFloat8 = 22400;
inline constexpr int kFloat8Capability = 90;  // of GPUs; older ones only move such floats

}  // namespace hvd::collectives::nccl
