#include "python/src/group.h"

#include <string>
#include <utility>

#include "python/src/error_map.h"
#include "python/src/gil.h"
#include "python/src/session_slot.h"

namespace py = pybind11;

namespace hvd::python {

Group::Group(CallArgs call, const ReductionArgs& reduction, std::size_t count, py::object keep)
    : call_(std::move(call)), reduction_(reduction), ending_("of" + std::to_string(count)), keep_(std::move(keep)) {
  operations_.reserve(count);
  members_.reserve(count);
}

void Group::add(TensorArgs&& tensor, py::object result) {
  const std::string number = std::to_string(operations_.size() + 1);
  Operation& operation = operations_.emplace_back();
  operation.name.reserve(call_.name.size() + 1 + number.size() + ending_.size());
  operation.name.append(call_.name).append("_").append(number).append(ending_);
  Member& member = members_.emplace_back();
  member.slot = slot_for(call_, tensor);
  member.result = std::move(result);
  member.current_stream = tensor.place.current_stream;
  fill_operation(operation, call_, std::move(tensor), reduction_, member.slot);
  member.dtype = operation.input.dtype;
}

PyHandleGroup Group::submit() {
  release_dropped_objects();
  const auto session = session_slot().require_running();
  const auto kept = keep_alive(std::move(keep_));
  for (Operation& operation : operations_) operation.keep_alive = kept;
  auto handles = [&] {
    py::gil_scoped_release release;
    return session->enqueue_group(std::move(operations_));
  }();
  raise_if_error(handles.status());
  std::vector<PyHandle> submitted;
  submitted.reserve(members_.size());
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    submitted.emplace_back(std::move(handles.value()[i]), std::move(member.slot), member.dtype,
                           std::move(member.result), std::move(member.current_stream));
  }
  return PyHandleGroup(std::move(submitted));
}

}  // namespace hvd::python
