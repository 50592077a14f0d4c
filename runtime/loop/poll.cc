#include "runtime/loop/poll.h"

#include "runtime/base/check.h"

namespace hvd::loop {
namespace {

uv_handle_t* as_handle(uv_poll_t* poll) { return reinterpret_cast<uv_handle_t*>(poll); }

}  // namespace

Poll::Poll(uv_loop_t* loop, int fd, std::function<void(bool, bool)> callback)
    : state_(new State{{}, std::move(callback), 0, {}}) {
  check_thread();  // from now on it belongs to this one
  HVD_CHECK(uv_poll_init(loop, &state_->handle, fd) == 0, "uv_poll_init");
  state_->handle.data = state_;
}

Poll::~Poll() {
  if (uv_is_closing(as_handle(&state_->handle)) != 0) {
    delete state_;  // the loop closed it when it stopped, and has ended
    return;
  }
  check_thread();
  uv_close(as_handle(&state_->handle), [](uv_handle_t* handle) { delete static_cast<State*>(handle->data); });
}

void Poll::check_thread() const {
  HVD_DCHECK(state_->thread.is_current(), "the watch of a descriptor belongs to its loop's thread");
}

void Poll::watch(bool readable, bool writable) {
  check_thread();
  const int events = (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0);
  if (events == state_->events) return;
  state_->events = events;
  if (events == 0) {
    uv_poll_stop(&state_->handle);
    return;
  }
  uv_poll_start(&state_->handle, events, [](uv_poll_t* poll, int status, int seen) {
    const auto callback = static_cast<State*>(poll->data)->callback;  // a copy: it may destroy the watch
    const bool error = status < 0;
    callback(error || (seen & UV_READABLE) != 0, error || (seen & UV_WRITABLE) != 0);
  });
}

}  // namespace hvd::loop
