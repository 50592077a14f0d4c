#include <pybind11/pybind11.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "python/src/interrupts.h"
#include "python/src/registration.h"

namespace hvd::python {

namespace {

namespace py = pybind11;

// Whether the main thread executes Python code: it does what it is asked between two instructions, after its signals.
// Thread-safe. While it does, nothing has to be interrupted for it.
class MainThread {
 public:
  // Asks anew. When the queue is full it answers others first, and has to be asked again.
  void ask() {
    std::lock_guard lock(mutex_);
    answered_ = false;
    if (!queued_) {
      queued_ = Py_AddPendingCall([](void* self) { return static_cast<MainThread*>(self)->answer(); }, this) == 0;
    }
  }
  bool wait_for_answer(double seconds) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return answered_; });
  }
  // Ends the waits, unless it has answered.
  void interrupt_waits() {
    std::vector<std::shared_ptr<Interruptible>> waits;
    {
      std::lock_guard lock(mutex_);
      if (!answered_) waits = interrupts().close();
    }
    for (const auto& wait : waits) wait->interrupt();
  }
  // It is about to raise KeyboardInterrupt: what it waits for from here on is none of that signal's business.
  void raises() {
    std::lock_guard lock(mutex_);
    ++raised_;
    be_back();
  }
  long raised() {
    std::lock_guard lock(mutex_);
    return raised_;
  }

 private:
  int answer() {
    std::lock_guard lock(mutex_);
    queued_ = false;
    be_back();
    return 0;
  }
  void be_back() {
    answered_ = true;
    interrupts().reopen();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool queued_ = false;
  bool answered_ = true;
  long raised_ = 0;
};

// Never destroyed: a question may be queued when the process ends.
MainThread& main_thread() {
  static auto* instance = new MainThread;
  return *instance;
}

// Whether TensorFlow's C++ code is making an error in this frame, for a call that it will fail with that error.
bool makes_tensorflow_error(const py::object& frame) {
  if (frame.is_none() || py::cast<std::string>(frame.attr("f_code").attr("co_name")) != "__init__") return false;
  const py::object module = frame.attr("f_globals").attr("get")("__name__");
  if (!py::isinstance<py::str>(module)) return false;
  const auto name = py::cast<std::string>(module);
  return name == "tensorflow.python.framework.errors_impl" || name == "tensorflow.python.eager.core";
}

// The handler of SIGINT in place of Python's own. An exception out of the making of an error would become a
// RuntimeError, so there the signal is put off: it comes again at Python's next look, until that is elsewhere. Not
// written in Python, because a look would come in the middle of it.
void raise_interrupt(int signum, const py::object& frame) {
  if (makes_tensorflow_error(frame)) {
    PyErr_SetInterruptEx(signum);
    return;
  }
  main_thread().raises();
  PyErr_SetNone(PyExc_KeyboardInterrupt);
  throw py::error_already_set();
}

}  // namespace

void register_interrupts(py::module_& module) {
  // Ending a wait runs the framework's code, which may want the GIL.
  module.def("interrupt_waits", [] {
    py::gil_scoped_release release;
    main_thread().interrupt_waits();
  });
  module.def("allow_waits", [] { interrupts().reopen(); });
  module.def("ask_main_thread", [] { main_thread().ask(); });
  module.def(
      "main_thread_answers",
      [](double within_s) {
        py::gil_scoped_release release;
        return main_thread().wait_for_answer(within_s);
      },
      py::arg("within_s"));
  module.def("raised_interrupts", [] { return main_thread().raised(); });
  module.def("raise_interrupt", &raise_interrupt, py::arg("signum"), py::arg("frame"));
}

}  // namespace hvd::python
