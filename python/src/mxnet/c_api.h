#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "horovod/status.h"

// The part of MXNet's C API (include/mxnet/c_api.h of MXNet 1.9) that is used here, found at run time in the library
// that mxnet has loaded.
namespace hvd::mxnet {

using ArrayHandle = void*;
using AsyncFn = void (*)(void* run_context, void* on_complete, void* parameter);
using DeleterFn = void (*)(void* parameter);

// What the engine hands to an asynchronous function (mxnet::engine::CallbackOnComplete): to be copied, and called once,
// by any thread, when the operation has ended. With an error all that depends on the operation is skipped, and fails
// where it is waited for.
struct OnComplete {
  void (*callback)(void* engine, void* parameter, const std::runtime_error* error) = nullptr;
  void* engine = nullptr;
  void* parameter = nullptr;
};

// The error that `callback` takes, dmlc::Error: std::runtime_error with nothing added. The engine copies it.
struct EngineError final : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// As mxnet::Context.
struct Context {
  std::int32_t type;
  std::int32_t id;
};
inline constexpr Context kCpu{1, 0};

// mxnet::FnProperty: the workers that take the ready operation with the highest priority first.
inline constexpr int kCpuPrioritized = 3;

// F(result, name without MX, arguments)
#define HVD_MXNET_FUNCTIONS(F)                                                                                    \
  F(const char*, GetLastError, ())                                                                                \
  F(int, NDArrayFree, (ArrayHandle))                                                                              \
  F(int, ShallowCopyNDArray, (ArrayHandle, ArrayHandle*))                                                         \
  F(int, NDArrayToDLPack, (ArrayHandle, void**))                                                                  \
  F(int, EnginePushAsyncND,                                                                                       \
    (AsyncFn, void*, DeleterFn, const void*, ArrayHandle*, int, ArrayHandle*, int, const void*, int, const char*, \
     bool))

// Pointers to the functions above.
struct Api {
// NOLINTNEXTLINE(bugprone-macro-parentheses): parts of a declaration
#define HVD_MXNET_MEMBER(result, name, arguments) result(*name) arguments = nullptr;
  HVD_MXNET_FUNCTIONS(HVD_MXNET_MEMBER)
#undef HVD_MXNET_MEMBER
  // mxnet::NDArray::Reorder2DefaultAsync() const: pushes an operation that brings an array which oneDNN has left in a
  // layout of its own back into rows. Null in an MXNet without oneDNN, which leaves none.
  void (*reorder)(const void* array) = nullptr;
};

// Finds all functions in `library`, a handle of dlopen(). kPrecondition names what is missing.
Status load_api(void* library);
// Requires: load_api() succeeded. Any thread.
const Api& api();
// OK for 0, else kInternal with the first line of MXNet's text for this thread's last error.
Status to_status(int code);

}  // namespace hvd::mxnet
