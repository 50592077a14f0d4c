#include "python/src/error_map.h"

#include <pybind11/pybind11.h>

namespace hvd::python {

void raise_if_error(const Status& status) {
  if (status.is_ok()) return;
  if (status.code() == StatusCode::kInvalidArgument) raise_value_error(status);
  const pybind11::object error = pybind11::module_::import("horovod.common.exceptions").attr("HorovodInternalError");
  PyErr_SetString(error.ptr(), status.message().c_str());
  throw pybind11::error_already_set();
}

void raise_value_error(const Status& status) { throw pybind11::value_error(status.message()); }

}  // namespace hvd::python
