#include "runtime/loop/timer.h"

#include "runtime/base/check.h"

namespace hvd::loop {
namespace {

uv_handle_t* as_handle(uv_timer_t* timer) { return reinterpret_cast<uv_handle_t*>(timer); }

std::uint64_t to_ms(Millis span) { return span.count() < 0 ? 0 : static_cast<std::uint64_t>(span.count()); }

}  // namespace

Timer::Timer(uv_loop_t* loop, std::function<void()> callback) : state_(new State{{}, std::move(callback), {}}) {
  check_thread();  // from now on it belongs to this one
  HVD_CHECK(uv_timer_init(loop, &state_->handle) == 0, "uv_timer_init");
  state_->handle.data = state_;
}

Timer::~Timer() {
  if (uv_is_closing(as_handle(&state_->handle)) != 0) {
    delete state_;  // the loop closed it when it stopped, and has ended
    return;
  }
  check_thread();
  uv_close(as_handle(&state_->handle), [](uv_handle_t* handle) { delete static_cast<State*>(handle->data); });
}

void Timer::check_thread() const { HVD_DCHECK(state_->thread.is_current(), "a timer belongs to its loop's thread"); }

void Timer::start(Millis delay) {
  check_thread();
  uv_update_time(state_->handle.loop);  // the loop's clock may be old when it was busy
  uv_timer_start(
      &state_->handle,
      [](uv_timer_t* timer) {
        const auto callback = static_cast<State*>(timer->data)->callback;  // a copy: it may destroy the timer
        callback();
      },
      to_ms(delay), 0);
}

void Timer::start_repeating(Millis period) {
  start(period);
  uv_timer_set_repeat(&state_->handle, to_ms(period));
}

void Timer::stop() {
  check_thread();
  uv_timer_stop(&state_->handle);
}

bool Timer::active() const { return uv_is_active(reinterpret_cast<const uv_handle_t*>(&state_->handle)) != 0; }

}  // namespace hvd::loop
