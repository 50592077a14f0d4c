#include "python/src/repeated_allreduce.h"

#include <utility>

#include "python/src/enqueue.h"
#include "python/src/gil.h"

namespace py = pybind11;

namespace hvd::python {

RepeatedAllreduce::RepeatedAllreduce(std::string name, Shape shape, int dtype,
                                     std::tuple<int, double, double, std::int32_t> reduction) {
  const auto& [op, prescale, postscale, process_set] = reduction;
  operation_ = make_operation({static_cast<int>(OpType::kAllreduce), std::move(name), -1, {}},
                              {0, 0, std::move(shape), dtype}, {op, prescale, postscale, process_set}, nullptr);
}

void RepeatedAllreduce::start(TensorArgs&& tensor, py::object keep) {
  Place& place = tensor.place;
  if (tensor.shape != operation_.input.shape) operation_.input.shape = std::move(tensor.shape);
  Operation operation = operation_;
  operation.input.data = reinterpret_cast<void*>(tensor.data);
  operation.output = operation.input.data;
  operation.input.device = place.device;
  operation.stream = reinterpret_cast<void*>(place.stream);
  operation.may_precede_gpu = !place.current_stream.is_none();
  operation.keep_alive = keep_alive(std::move(keep));
  submitted_.emplace(submit(std::move(operation), nullptr, py::none(), std::move(place.current_stream)));
}

PyHandle RepeatedAllreduce::submitted() const {
  if (!submitted_) throw py::value_error("nothing was submitted that could be waited for");
  return *submitted_;
}

}  // namespace hvd::python
