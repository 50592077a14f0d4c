#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "horovod/session.h"
#include "python/src/handle.h"
#include "python/src/operation_args.h"

namespace hvd::python {

// Operations of one kind that are submitted together, all of them or none; each is called `<name>_<i>of<n>`. Used under
// the GIL.
class Group {
 public:
  // `call`: of all of them, with the name of the group. `keep` owns the memory of all tensors.
  Group(CallArgs call, const ReductionArgs& reduction, std::size_t count, pybind11::object keep);

  // The next member. `result`: what the wait for it gives.
  void add(TensorArgs&& tensor, pybind11::object result);
  // Once. Gives the GIL up meanwhile. Raises what the core refuses.
  PyHandleGroup submit();

 private:
  // What a member's handle is made of, beside the core's.
  struct Member {
    std::shared_ptr<OutputSlot> slot;
    DataType dtype{};
    pybind11::object result;
    pybind11::object current_stream;
  };

  const CallArgs call_;
  const ReductionArgs reduction_;
  const std::size_t count_;
  pybind11::object keep_;
  std::vector<Operation> operations_;
  std::vector<Member> members_;
};

}  // namespace hvd::python
