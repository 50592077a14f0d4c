#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>
#include <tuple>

#include "horovod/session.h"
#include "python/src/handle.h"
#include "python/src/operation_args.h"

namespace hvd::python {

// An allreduce in place that is submitted again and again under one name, nearly always with one shape: a parameter's
// gradient. All but memory and shape is known beforehand. It is its own handle: one submission at a time. Used under
// the GIL; wait() gives it up.
class RepeatedAllreduce {
 public:
  RepeatedAllreduce(std::string name, Shape shape, int dtype, std::tuple<int, double, double, std::int32_t> reduction);

  // A DataType; start() takes tensors of no other.
  int dtype() const { return static_cast<int>(operation_.input.dtype); }
  void start(TensorArgs&& tensor, pybind11::object keep);
  // A copy: start() may replace it while somebody waits without the GIL. ValueError: nothing was submitted.
  PyHandle submitted() const;

 private:
  Operation operation_;  // without memory
  std::optional<PyHandle> submitted_;
};

}  // namespace hvd::python
