#pragma once

#include <uv.h>

#include <memory>

#include "runtime/base/thread.h"

namespace hvd::launcher {

// The libuv loop of the launcher or an agent: it runs on the thread that calls run(), where loop::Loop has a thread of
// its own. Owned by main; everything that hangs on it must be destroyed before it. Loop-confined.
class MainLoop {
 public:
  MainLoop();
  ~MainLoop();
  MainLoop(const MainLoop&) = delete;
  MainLoop& operator=(const MainLoop&) = delete;

  // For HVD_DCHECK in what hangs on it.
  bool in_loop() const { return thread_.is_current(); }
  uv_loop_t* get();
  // Until stop() or until nothing is left that could happen.
  void run();
  void stop();

 private:
  ThreadChecker thread_;
  std::unique_ptr<uv_loop_t> loop_;
};

}  // namespace hvd::launcher
