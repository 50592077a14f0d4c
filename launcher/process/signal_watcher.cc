#include "launcher/process/signal_watcher.h"

#include <csignal>
#include <utility>

#include "runtime/base/check.h"

namespace hvd::launcher {

SignalWatcher::SignalWatcher(MainLoop& loop, const std::vector<int>& signals, std::function<void(int)> on_signal)
    : on_signal_(std::move(on_signal)) {
  for (int signal : signals) {
    UvHandle<uv_signal_t>& handle = handles_.emplace_back();
    int rc = handle.init(this, [&](uv_signal_t* raw) { return uv_signal_init(loop.get(), raw); });
    if (rc == 0) {
      rc = uv_signal_start(
          handle.get(),
          [](uv_signal_t* raw, int number) {
            if (auto* self = static_cast<SignalWatcher*>(raw->data)) self->on_signal_(number);
          },
          signal);
    }
    HVD_CHECK(rc == 0, "cannot watch a signal");
    uv_unref(reinterpret_cast<uv_handle_t*>(handle.get()));
  }
}

void ignore_sigpipe() {
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
}

}  // namespace hvd::launcher
