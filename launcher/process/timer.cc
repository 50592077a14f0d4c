#include "launcher/process/timer.h"

#include <utility>

#include "runtime/base/check.h"

namespace hvd::launcher {

Timer::Timer(Loop& loop, std::function<void()> on_fire) : on_fire_(std::move(on_fire)) {
  const int rc = handle_.init(this, [&](uv_timer_t* timer) { return uv_timer_init(loop.get(), timer); });
  HVD_CHECK(rc == 0, "uv_timer_init cannot fail");
}

void Timer::start(Millis after) {
  uv_update_time(handle_.get()->loop);  // libuv counts from its cached time, which may be old by now
  uv_timer_start(
      handle_.get(),
      [](uv_timer_t* timer) {
        auto* self = static_cast<Timer*>(timer->data);
        if (self == nullptr) return;
        const auto callback = self->on_fire_;  // a copy: the callback may destroy *self
        callback();
      },
      static_cast<std::uint64_t>(after.count()), 0);
}

void Timer::stop() { uv_timer_stop(handle_.get()); }

}  // namespace hvd::launcher
