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
  static std::optional<TensorReader> of(pybind11::tuple classes);

  // With its own memory for the output. nullopt, without an error, for what needs a closer look: another class, memory
  // that is not the CPU's or has gaps, a value that the memory does not show (torch negates lazily), bool, a type of
  // 8-bit floats or one that the core does not have.
  std::optional<TensorArgs> read(PyObject* tensor) const;

 private:
  using ReadFunction = int (*)(void* tensor, DLTensor* out);

  TensorReader(ReadFunction function, pybind11::tuple classes);
  bool is_of_class(PyObject* tensor) const;

  ReadFunction function_;
  pybind11::tuple classes_;
  pybind11::object is_neg_;  // of the first of them
};

}  // namespace hvd::python
