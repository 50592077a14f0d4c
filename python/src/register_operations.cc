#include <pybind11/stl.h>
#include <unistd.h>

#include <tuple>
#include <vector>

#include "horovod/session.h"
#include "python/src/dlpack.h"
#include "python/src/error_map.h"
#include "python/src/gil.h"
#include "python/src/registration.h"
#include "python/src/session_slot.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

// Receives the memory of a result whose shape only the core knows. Written once, by a lane, before the handle is done.
struct OutputSlot {
  std::shared_ptr<CoreBuffer> buffer;
};

// What Python calls a Handle: the core's handle, and the memory the core allocated for it.
class PyHandle {
 public:
  PyHandle(HandlePtr handle, std::shared_ptr<OutputSlot> output, DataType dtype)
      : handle_(std::move(handle)), output_(std::move(output)), dtype_(dtype) {}

  bool done() const {
    release_dropped_objects();
    return handle_->done();
  }

  void wait() const {
    if (!handle_->done()) {
      // The threads that would finish it exist only in the process that submitted it.
      if (::getpid() != owner_) {
        raise_if_error(Status::precondition("submitted before a fork(): only the parent can wait for it"));
      }
      wait_interruptibly([this](std::chrono::milliseconds slice) { return handle_->wait_for(slice); });
    }
    release_dropped_objects();
    raise_if_error(handle_->status());
  }

  py::capsule output_dlpack() const {
    require_done();
    if (output_ == nullptr || output_->buffer == nullptr) {
      throw py::value_error("this operation has no output of its own: it wrote to the given memory");
    }
    return to_dlpack(std::exchange(output_->buffer, nullptr), handle_->output_shape(), dtype_);
  }

  std::vector<std::int64_t> received_splits() const {
    require_done();
    return handle_->received_splits();
  }

  std::int64_t value() const {
    require_done();
    return handle_->value();
  }

 private:
  void require_done() const {
    if (!handle_->done()) throw py::value_error("the operation is not done yet: call wait() first");
  }

  HandlePtr handle_;
  std::shared_ptr<OutputSlot> output_;
  DataType dtype_;
  pid_t owner_ = ::getpid();
};

template <typename Enum>
Enum checked(int code, int count, const char* what) {
  if (code < 0 || code >= count) {
    throw py::value_error(std::string(what) + " must be 0.." + std::to_string(count - 1) + ", not " +
                          std::to_string(code));
  }
  return static_cast<Enum>(code);
}

// One tensor of a submission, as Python gives it.
struct TensorArgs {
  std::string name;
  std::uintptr_t data;
  std::uintptr_t output;
  Shape shape;
  int dtype;
  int device;
};

// What all tensors of one submission share.
struct CommonArgs {
  OpType op;
  ReduceOp reduce_op;
  double prescale;
  double postscale;
  int root_rank;
  std::int32_t process_set;
  std::shared_ptr<void> keep;
};

Operation make_operation(TensorArgs tensor, const CommonArgs& common, const std::shared_ptr<OutputSlot>& slot) {
  Operation operation;
  operation.op = common.op;
  operation.name = std::move(tensor.name);
  operation.process_set = common.process_set;
  operation.input = {reinterpret_cast<void*>(tensor.data), std::move(tensor.shape),
                     checked<DataType>(tensor.dtype, kDataTypeCount, "dtype"), tensor.device};
  operation.output = reinterpret_cast<void*>(tensor.output);
  operation.reduce_op = common.reduce_op;
  operation.prescale = common.prescale;
  operation.postscale = common.postscale;
  operation.root_rank = common.root_rank;
  operation.keep_alive = common.keep;
  if (tensor.output == 0 && slot != nullptr) {
    const std::size_t item = element_size(operation.input.dtype);
    operation.allocate_output = [slot, item](const Shape& shape) -> Result<void*> {
      try {
        slot->buffer = std::make_shared<CoreBuffer>(static_cast<std::size_t>(num_elements(shape)) * item);
      } catch (const std::bad_alloc&) {
        return Status::internal("out of memory for an output of shape " + to_string(shape));
      }
      return slot->buffer->data();
    };
  }
  return operation;
}

std::shared_ptr<OutputSlot> slot_for(OpType op, std::uintptr_t output) {
  const bool core_allocates = op == OpType::kAllgather || op == OpType::kAlltoall || op == OpType::kReducescatter;
  return core_allocates && output == 0 ? std::make_shared<OutputSlot>() : nullptr;
}

PyHandle enqueue(int op_code, std::string name, std::uintptr_t data, std::uintptr_t output, Shape shape, int dtype,
                 int device, int reduce_op, double prescale, double postscale, int root_rank, std::int32_t process_set,
                 py::object keep) {
  release_dropped_objects();
  const auto session = session_slot().require_running();
  const auto op = checked<OpType>(op_code, kOpTypeCount, "op");
  const CommonArgs common{op,        checked<ReduceOp>(reduce_op, kReduceOpCount, "reduce_op"),
                          prescale,  postscale,
                          root_rank, process_set,
                          keep_alive(std::move(keep))};
  auto slot = slot_for(op, output);
  Operation operation = make_operation({std::move(name), data, output, std::move(shape), dtype, device}, common, slot);
  const DataType type = operation.input.dtype;
  auto handle = [&] {
    py::gil_scoped_release release;
    return session->enqueue(std::move(operation));
  }();
  raise_if_error(handle.status());
  return {std::move(handle).value(), std::move(slot), type};
}

PyHandle enqueue_alltoall(std::string name, std::uintptr_t data, Shape shape, int dtype, int device,
                          std::vector<std::int64_t> splits, std::int32_t process_set, py::object keep) {
  release_dropped_objects();
  const auto session = session_slot().require_running();
  const CommonArgs common{OpType::kAlltoall, ReduceOp::kSum, 1.0, 1.0, -1, process_set, keep_alive(std::move(keep))};
  auto slot = slot_for(OpType::kAlltoall, 0);
  Operation operation = make_operation({std::move(name), data, 0, std::move(shape), dtype, device}, common, slot);
  operation.splits = std::move(splits);
  const DataType type = operation.input.dtype;
  auto handle = [&] {
    py::gil_scoped_release release;
    return session->enqueue(std::move(operation));
  }();
  raise_if_error(handle.status());
  return {std::move(handle).value(), std::move(slot), type};
}

using GroupEntry = std::tuple<std::string, std::uintptr_t, std::uintptr_t, Shape, int, int>;

std::vector<PyHandle> enqueue_group(int op_code, const std::vector<GroupEntry>& entries, int reduce_op, double prescale,
                                    double postscale, std::int32_t process_set, py::object keep) {
  release_dropped_objects();
  const auto session = session_slot().require_running();
  const auto op = checked<OpType>(op_code, kOpTypeCount, "op");
  const CommonArgs common{op,       checked<ReduceOp>(reduce_op, kReduceOpCount, "reduce_op"),
                          prescale, postscale,
                          -1,       process_set,
                          keep_alive(std::move(keep))};
  std::vector<Operation> operations;
  std::vector<std::shared_ptr<OutputSlot>> slots;
  std::vector<DataType> types;
  for (const auto& [name, data, output, shape, dtype, device] : entries) {
    slots.push_back(slot_for(op, output));
    operations.push_back(make_operation({name, data, output, shape, dtype, device}, common, slots.back()));
    types.push_back(operations.back().input.dtype);
  }
  auto handles = [&] {
    py::gil_scoped_release release;
    return session->enqueue_group(std::move(operations));
  }();
  raise_if_error(handles.status());
  std::vector<PyHandle> out;
  for (std::size_t i = 0; i < slots.size(); ++i) out.emplace_back(handles.value()[i], slots[i], types[i]);
  return out;
}

}  // namespace

void register_operations(py::module_& module) {
  py::class_<PyHandle>(module, "Handle")
      .def("done", &PyHandle::done)
      .def("wait", &PyHandle::wait)
      .def("output_dlpack", &PyHandle::output_dlpack)
      .def("received_splits", &PyHandle::received_splits)
      .def("value", &PyHandle::value);
  module.def("enqueue", &enqueue, py::arg("op"), py::arg("name"), py::arg("data_ptr"), py::arg("output_ptr"),
             py::arg("shape"), py::arg("dtype"), py::arg("device"), py::arg("reduce_op"), py::arg("prescale"),
             py::arg("postscale"), py::arg("root_rank"), py::arg("process_set"), py::arg("keep"));
  module.def("enqueue_alltoall", &enqueue_alltoall, py::arg("name"), py::arg("data_ptr"), py::arg("shape"),
             py::arg("dtype"), py::arg("device"), py::arg("splits"), py::arg("process_set"), py::arg("keep"));
  module.def("enqueue_group", &enqueue_group, py::arg("op"), py::arg("entries"), py::arg("reduce_op"),
             py::arg("prescale"), py::arg("postscale"), py::arg("process_set"), py::arg("keep"));
}

}  // namespace hvd::python
