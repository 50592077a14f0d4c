#include "launcher/process/main_loop.h"

#include <poll.h>

#include <cstdio>
#include <cstdlib>

#include "runtime/base/check.h"

namespace hvd::launcher {
namespace {

// ThreadSanitizer allocates what it needs to defer signals in a thread's first blocking call, and loses a signal that
// arrives during just that (GCC 12). Mostly it is the SIGCHLD of a first child that ends at once, for which the loop
// would wait for ever. So the first blocking call comes before there is a child.
void prepare_for_signals() {
#ifdef __SANITIZE_THREAD__
  ::poll(nullptr, 0, 0);
#endif
}

}  // namespace

MainLoop::MainLoop() : loop_(std::make_unique<uv_loop_t>()) {
  prepare_for_signals();
  if (const int error = uv_loop_init(loop_.get()); error != 0) {
    std::fprintf(stderr, "horovodrun: no event loop: %s\n", uv_strerror(error));
    std::exit(1);
  }
}

MainLoop::~MainLoop() {
  // One more turn, so that the handles closed by their owners are freed.
  uv_run(loop_.get(), UV_RUN_NOWAIT);
  // A name look-up that libuv's thread pool still has in hand keeps the loop busy; the process is about to end, and
  // there is no use in waiting for a DNS timeout.
  if (uv_loop_close(loop_.get()) == UV_EBUSY) static_cast<void>(loop_.release());
}

uv_loop_t* MainLoop::get() {
  HVD_DCHECK(in_loop(), "the main loop is confined to one thread");
  return loop_.get();
}

void MainLoop::run() { uv_run(get(), UV_RUN_DEFAULT); }
void MainLoop::stop() { uv_stop(get()); }

}  // namespace hvd::launcher
