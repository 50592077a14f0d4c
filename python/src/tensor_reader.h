#pragma once

#include <pybind11/pybind11.h>

#include <optional>

#include "python/src/dlpack.h"
#include "python/src/operation_args.h"

namespace hvd::python {

// Reads memory, shape and type of a framework's tensors without their accessors in Python, by the table of C functions
// that their class has since DLPack 1.2 (`__dlpack_c_exchange_api__`; torch 2.10 and newer). Used under the GIL.
class TensorReader {
 public:
  // Of tensors of exactly these classes, the first of which has the table. nullopt: it has none that is known here.
  // `current_stream`: as Place::current_stream.
  static std::optional<TensorReader> of(pybind11::tuple classes, pybind11::object current_stream);

  // With its own memory for the output. nullopt, without an error, for what needs a closer look: another class, memory
  // of other devices than the CPU and CUDA's GPUs, or with gaps, a value that the memory does not show (torch negates
  // lazily), bool, a type of 8-bit floats or one that the core does not have. `before`: a tensor that was read just
  // now, whose stream is known.
  std::optional<TensorArgs> read(PyObject* tensor, const TensorArgs* before = nullptr) const;

 private:
  using ReadFunction = int (*)(void* tensor, DLTensor* out);

  TensorReader(ReadFunction function, pybind11::tuple classes, pybind11::object current_stream);
  bool is_of_class(PyObject* tensor) const;
  Place place_on_gpu(int device) const;

  ReadFunction function_;
  pybind11::tuple classes_;
  pybind11::object is_neg_;  // of the first of them
  pybind11::object current_stream_;
};

}  // namespace hvd::python
