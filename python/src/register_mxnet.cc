#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/src/dlpack.h"
#include "python/src/error_map.h"
#include "python/src/gil.h"
#include "python/src/mxnet/calls_in_flight.h"
#include "python/src/mxnet/engine_call.h"
#include "python/src/operation_args.h"
#include "python/src/registration.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

using mxnet::ArrayHandle;
using mxnet::EngineCall;
using Addresses = std::vector<std::uintptr_t>;

// What Python calls an MxnetCall. Used under the GIL.
class PyMxnetCall {
 public:
  explicit PyMxnetCall(std::shared_ptr<EngineCall> call) : call_(std::move(call)) {}

  std::optional<std::string> wait() const {
    wait_interruptibly([&](std::chrono::milliseconds slice) { return call_->wait_for(slice); });
    if (call_->was_skipped()) return "";
    return call_->status().is_ok() ? std::nullopt : std::optional(call_->status().message());
  }
  py::capsule output_dlpack(std::size_t index) const {
    const EngineCall::Output& output = call_->output(index);
    return to_dlpack(output.memory, output.shape, output.dtype);
  }
  std::vector<std::int64_t> received_splits() const { return call_->received_splits(); }

 private:
  std::shared_ptr<EngineCall> call_;
};

ArrayHandle handle_at(std::uintptr_t address) { return reinterpret_cast<ArrayHandle>(address); }

std::vector<mxnet::Array> share(const Addresses& addresses) {
  std::vector<mxnet::Array> arrays;
  for (const std::uintptr_t address : addresses) {
    auto shared = mxnet::Array::share(handle_at(address));
    raise_if_error(shared.status());
    arrays.push_back(std::move(shared).value());
  }
  return arrays;
}

PyMxnetCall push(const py::object& call, const py::object& reduction, const Addresses& inputs, const Addresses& outputs,
                 bool grouped, int priority) {
  if (inputs.empty() || (!outputs.empty() && outputs.size() != inputs.size()) || (!grouped && inputs.size() > 1)) {
    throw py::value_error("mxnet_push(): " + std::to_string(inputs.size()) + " inputs and " +
                          std::to_string(outputs.size()) + " outputs do not fit together");
  }
  mxnet::Request request;
  const CallArgs arguments = call_from(call.ptr());
  fill_operation(request.common, arguments, TensorArgs{0, 0, {}, 0}, reduction_from(reduction.ptr()), nullptr);
  request.common.name = arguments.name;
  request.is_grouped = grouped;
  request.inputs = share(inputs);
  request.outputs = share(outputs);
  auto made = std::make_shared<EngineCall>(std::move(request));
  Status status;
  {
    py::gil_scoped_release release;  // MXNet's NaiveEngine returns when the operation has ended
    status = made->push(priority);
  }
  raise_if_error(status);
  return PyMxnetCall(std::move(made));
}

// Whether no calls are left in the engine; false when none has ended for `limit_s` seconds, or None for no limit.
bool wait_for_calls(std::optional<double> limit_s) {
  using Clock = std::chrono::steady_clock;
  auto since = Clock::now();
  std::int64_t ended = mxnet::calls_in_flight().ended();
  bool is_stuck = false;
  wait_interruptibly([&](std::chrono::milliseconds slice) {
    if (mxnet::calls_in_flight().wait_for_none(slice)) return true;
    if (const std::int64_t now = mxnet::calls_in_flight().ended(); now != ended) {
      ended = now;
      since = Clock::now();
    }
    is_stuck = limit_s && std::chrono::duration<double>(Clock::now() - since).count() >= *limit_s;
    return is_stuck;
  });
  return !is_stuck;
}

}  // namespace

void register_mxnet(py::module_& module) {
  py::class_<PyMxnetCall>(module, "MxnetCall")
      .def("wait", &PyMxnetCall::wait)
      .def("output_dlpack", &PyMxnetCall::output_dlpack, py::arg("index"))
      .def("received_splits", &PyMxnetCall::received_splits);
  module.def(
      "mxnet_load", [](std::uintptr_t library) { raise_if_error(mxnet::load_api(reinterpret_cast<void*>(library))); },
      py::arg("library"));
  module.def("mxnet_push", &push, py::arg("call"), py::arg("reduction"), py::arg("inputs"), py::arg("outputs"),
             py::arg("grouped"), py::arg("priority"));
  module.def(
      "mxnet_same_memory",
      [](std::uintptr_t one, std::uintptr_t other) {
        return mxnet::Array::memory_of(handle_at(one)) == mxnet::Array::memory_of(handle_at(other));
      },
      py::arg("one"), py::arg("other"));
  module.def("mxnet_wait_for_calls", &wait_for_calls, py::arg("limit_s") = py::none());
}

}  // namespace hvd::python
