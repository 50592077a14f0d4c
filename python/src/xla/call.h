#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "horovod/status.h"
#include "horovod/types.h"
#include "python/src/xla/ffi.h"

namespace hvd::xla {

// Where the tensors of a call are: on the CPU, or on a GPU with the stream in which the program runs.
struct Place {
  int device = kCpuDevice;
  void* stream = nullptr;
};

// One custom call of a compiled program: its buffers, and the attributes that Python wrote into the program
// (horovod/tensorflow/_xla.py, horovod/jax/_primitive.py). A view; lives as long as the handler runs, on the thread
// that runs it.
class XlaCall {
 public:
  explicit XlaCall(const ffi::CallFrame* frame) : frame_(frame) {}

  int arguments() const { return static_cast<int>(frame_->arguments.count); }
  int results() const { return static_cast<int>(frame_->results.count); }
  // Of memory on `device`. Requires: 0 <= index < arguments() or results().
  Result<TensorRef> argument(int index, int device = kCpuDevice) const;
  Result<TensorRef> result(int index, int device = kCpuDevice) const;
  // Requires: a call on a GPU. kPrecondition when XLA is too old to say.
  Result<Place> gpu() const;

  // kInternal when the program has no such attribute: it was made by another version of Horovod.
  Result<std::int32_t> integer(std::string_view name) const;
  Result<double> number(std::string_view name) const;
  Result<std::string> text(std::string_view name) const;

 private:
  template <typename T>
  Result<T> scalar(std::string_view name, ffi::Type type) const;
  Result<const void*> find(std::string_view name, ffi::AttributeKind kind) const;

  const ffi::CallFrame* frame_;
};

// The words of an error of XLA, which ends here.
std::string take_message(const ffi::Api& api, ffi::Error* error);

using XlaFunction = Status (*)(const XlaCall&);

// Answers XLA's question for the version; else runs `function`, whose failure becomes XLA's. No exception gets through.
ffi::Error* run_xla_function(ffi::CallFrame* frame, XlaFunction function);

// A function as the handler that XLA calls.
template <XlaFunction kFunction>
ffi::Error* xla_handler(ffi::CallFrame* frame) {
  return run_xla_function(frame, kFunction);
}

}  // namespace hvd::xla
