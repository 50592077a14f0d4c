#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "horovod/session.h"
#include "python/src/handle.h"

// The values that Python submits (see _core.pyi), made into an Operation.
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

// What a submission does: for one tensor, or for several that are negotiated together.
struct CallArgs {
  int kind;  // an OpType
  std::string name;
  int root_rank;
  std::vector<std::int64_t> splits;
};

// Of the tuple that _core.pyi calls a call; as the other two below, TypeError or ValueError for another object.
CallArgs call_from(PyObject* object);
// Of its first three items: a call without splits.
CallArgs call_of(PyObject* const* items);

// Where a tensor lies.
struct Place {
  int device = kCpuDevice;
  std::uintptr_t stream = 0;  // of a GPU, as the driver calls it; 0 is the default one
  // Given a GPU, the stream that is current on the calling thread: who waits for the result lets that stream wait.
  // None: who waits does so until the GPU has made it.
  pybind11::object current_stream = pybind11::none();
};
// Of -1 for the CPU, or the tuple (ordinal of the GPU, stream, current_stream).
Place place_of(PyObject* object);

// One tensor of a submission.
struct TensorArgs {
  std::uintptr_t data;
  std::uintptr_t output;
  Shape shape;
  int dtype;
  Place place{};
  // `output` has room for a result of this shape, which only the core knows: another shape gets memory of the core.
  std::optional<Shape> guess{};
};

TensorArgs tensor_from(PyObject* object);

// How a submission puts elements together, and among whom.
struct ReductionArgs {
  int op;  // a ReduceOp
  double prescale;
  double postscale;
  std::int32_t process_set;
};

ReductionArgs reduction_from(PyObject* object);
// Of its four items.
ReductionArgs reduction_of(PyObject* const* items);

// Where the core puts the memory of a result whose shape only it knows, or null for others.
std::shared_ptr<OutputSlot> slot_for(const CallArgs& call, const TensorArgs& tensor);

// `slot` is what slot_for() gave for them. Without name and `keep_alive`.
void fill_operation(Operation& operation, const CallArgs& call, TensorArgs&& tensor, const ReductionArgs& reduction,
                    const std::shared_ptr<OutputSlot>& slot);
// With the call's name.
Operation make_operation(CallArgs&& call, TensorArgs&& tensor, const ReductionArgs& reduction,
                         const std::shared_ptr<OutputSlot>& slot);

}  // namespace hvd::python
