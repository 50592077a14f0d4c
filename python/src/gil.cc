#include "python/src/gil.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "runtime/base/fork_mark.h"

namespace hvd::python {

namespace {

// Objects dropped by threads that must not take the GIL (lanes), the last one first. Without a lock, which a forked
// child would find held for ever. The list outlives everything: a lane may still drop something while the interpreter
// exits.
struct Dropped {
  PyObject* object;
  Dropped* next;
};
constinit std::atomic<Dropped*> dropped{nullptr};

// Who waits, and who waits for them to return. Never destroyed, as daemon threads are not.
struct Waits {
  std::atomic<int> now{0};
  std::atomic<bool> is_ending{false};
  ForkMark owner;  // a child has its parent's number, and none of its threads
  std::mutex mutex;
  std::condition_variable changed;
};
Waits& waits() {
  static auto* instance = new Waits;
  return *instance;
}

}  // namespace

GilWait::GilWait() { ++waits().now; }

GilWait::~GilWait() {
  Waits& all = waits();
  if (--all.now > 0 || !all.is_ending) return;
  {
    const std::lock_guard lock(all.mutex);
  }
  all.changed.notify_all();
}

bool GilWait::is_ending() { return waits().is_ending; }

void GilWait::let_all_return(std::chrono::milliseconds limit) {
  Waits& all = waits();
  if (!all.owner.same_process()) return;
  all.is_ending = true;
  std::unique_lock lock(all.mutex);
  all.changed.wait_for(lock, limit, [&all] { return all.now == 0; });
  all.is_ending = false;  // a process that goes on may wait again
}

std::shared_ptr<void> keep_alive(pybind11::object object) {
  return {object.release().ptr(), [](void* raw) {
            auto* const last = new Dropped{static_cast<PyObject*>(raw), dropped.load(std::memory_order_relaxed)};
            while (!dropped.compare_exchange_weak(last->next, last, std::memory_order_release)) {
            }
          }};
}

void release_dropped_objects() {
  if (dropped.load(std::memory_order_relaxed) == nullptr) return;
  Dropped* next = dropped.exchange(nullptr, std::memory_order_acquire);
  while (next != nullptr) {
    const std::unique_ptr<Dropped> one(next);
    next = one->next;
    Py_DECREF(one->object);  // may run Python code that calls back into this module
  }
}

}  // namespace hvd::python
