#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>

#include "horovod/session.h"
#include "python/src/handle.h"

// Python's arguments of a submission, made into an Operation.
namespace hvd::python {

// Raises ValueError for a code that the enum does not have.
template <typename Enum>
Enum checked(int code, int count, const char* what) {
  if (code < 0 || code >= count) {
    throw pybind11::value_error(std::string(what) + " must be 0.." + std::to_string(count - 1) + ", not " +
                          std::to_string(code));
  }
  return static_cast<Enum>(code);
}

// One tensor of a submission, as Python gives it.
struct TensorArgs {
  std::string name;
  std::uintptr_t data;
  std::uintptr_t output;
  Shape shape;
  int dtype;
  int device;
};

// What all tensors of one submission share.
struct CommonArgs {
  OpType op;
  ReduceOp reduce_op;
  double prescale;
  double postscale;
  int root_rank;
  std::int32_t process_set;
  std::shared_ptr<void> keep;
};

// `slot` is for results whose memory the core allocates (slot_for), else null.
Operation make_operation(TensorArgs tensor, const CommonArgs& common, const std::shared_ptr<OutputSlot>& slot);

// Where the core puts the memory of a result, or null when the caller gave memory.
std::shared_ptr<OutputSlot> slot_for(OpType op, std::uintptr_t output);

}  // namespace hvd::python
