#include "python/src/group.h"

#include <string>
#include <utility>

#include "python/src/error_map.h"
#include "python/src/gil.h"
#include "python/src/session_slot.h"
#include "runtime/base/group_name.h"

namespace py = pybind11;

namespace hvd::python {

Group::Group(CallArgs call, const ReductionArgs& reduction, std::size_t count, py::object keep)
    : call_(std::move(call)), reduction_(reduction), count_(count), keep_(std::move(keep)) {
  operations_.reserve(count);
  members_.reserve(count);
}

void Group::add(TensorArgs&& tensor, py::object result) {
  Operation& operation = operations_.emplace_back();
  operation.name = group_member_name(call_.name, operations_.size(), count_);
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
    const WithoutGil without_gil;
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
