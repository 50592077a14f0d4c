#include "launcher/process/signal_watcher.h"

#include <csignal>
#include <utility>

#include "runtime/base/check.h"

namespace hvd::launcher {

SignalWatcher::SignalWatcher(MainLoop& loop, const std::vector<int>& signals, std::function<void(int)> on_signal)
    : on_signal_(std::move(on_signal)) {
  for (int signal : signals) {
    Watched& watched = watched_.emplace_back(Watched{.signal = signal, .handle = {}});
    int rc = watched.handle.init(this, [&](uv_signal_t* raw) { return uv_signal_init(loop.get(), raw); });
    if (rc == 0) rc = start(watched);
    HVD_CHECK(rc == 0, "cannot watch a signal");
    uv_unref(reinterpret_cast<uv_handle_t*>(watched.handle.get()));
  }
}

int SignalWatcher::start(const Watched& watched) {
  return uv_signal_start(
      watched.handle.get(),
      [](uv_signal_t* raw, int number) {
        if (auto* self = static_cast<SignalWatcher*>(raw->data)) self->on_signal_(number);
      },
      watched.signal);
}

void SignalWatcher::take_default_action(int signal) {
  for (const Watched& watched : watched_) {
    if (watched.signal != signal) continue;
    uv_signal_stop(watched.handle.get());  // libuv sets SIG_DFL
    ::raise(signal);
    HVD_CHECK(start(watched) == 0, "cannot watch a signal again");
  }
}

}  // namespace hvd::launcher
