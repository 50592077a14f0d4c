#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <functional>
#include <memory>

namespace hvd::python {

// While it lives the thread may wait for the GIL in a frame of C++, where Python's way to end a daemon thread of a
// process that exits would abort the process. Thread-safe.
class GilWait {
 public:
  GilWait();
  ~GilWait();
  GilWait(const GilWait&) = delete;
  GilWait& operator=(const GilWait&) = delete;

  // Until no other thread is in one, for `limit` at most: for the end of the process, when nothing is left to wait for.
  // Requires: not the GIL.
  static void let_all_return(std::chrono::milliseconds limit);
  // While let_all_return() waits: who waits for something that goes on by itself is to end that.
  static bool is_ending();
};

// Gives the GIL up for a scope that may take a while.
class WithoutGil {
 private:
  const GilWait waits_;
  const pybind11::gil_scoped_release release_;  // ends first: to take the GIL back is to wait for it
};

// Waits without the GIL until `wait_for` says true; between slices lets Python handle signals, so that Ctrl-C raises
// KeyboardInterrupt out of here. The slice only bounds the rare signal that arrives just before the sleep: a signal
// during the sleep ends the sleep.
template <typename WaitFor>
void wait_interruptibly(WaitFor&& wait_for) {
  constexpr std::chrono::milliseconds kSlice{100};
  const GilWait waits;
  for (;;) {
    bool done = false;
    {
      pybind11::gil_scoped_release release;
      done = wait_for(kSlice);
    }
    if (done) return;
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
  }
}

// Makes a reference that any thread may drop: without the GIL the object is only put aside, and freed by the next call
// of release_dropped_objects().
std::shared_ptr<void> keep_alive(pybind11::object object);

// Frees what other threads have dropped. Requires: the GIL. Cheap when there is nothing.
void release_dropped_objects();

}  // namespace hvd::python
