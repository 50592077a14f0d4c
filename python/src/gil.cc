#include "python/src/gil.h"

#include <atomic>
#include <mutex>
#include <vector>

namespace hvd::python {

namespace {

// Objects dropped by threads that must not take the GIL (lanes). Never destroyed: a lane may still drop something while
// the interpreter exits.
struct Dropped {
  std::mutex mutex;
  std::vector<PyObject*> objects;
  std::atomic<bool> any{false};
};

Dropped& dropped() {
  static auto* instance = new Dropped;
  return *instance;
}

}  // namespace

std::shared_ptr<void> keep_alive(pybind11::object object) {
  return {object.release().ptr(), [](void* raw) {
            auto* python_object = static_cast<PyObject*>(raw);
            Dropped& list = dropped();
            std::lock_guard lock(list.mutex);
            list.objects.push_back(python_object);
            list.any.store(true, std::memory_order_release);
          }};
}

void release_dropped_objects() {
  Dropped& list = dropped();
  if (!list.any.load(std::memory_order_acquire)) return;
  std::vector<PyObject*> objects;
  {
    std::lock_guard lock(list.mutex);
    objects.swap(list.objects);
    list.any.store(false, std::memory_order_relaxed);
  }
  // Outside the lock: a destructor may run Python code that calls back into this module.
  for (PyObject* object : objects) Py_DECREF(object);
}

}  // namespace hvd::python
