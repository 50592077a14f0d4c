#include "runtime/transport/net_watch.h"

namespace hvd::transport {

NetWatch::NetWatch(uv_loop_t* loop, Progress& progress)
    : progress_(progress),
      poll_(loop, progress.epoll_fd(), [this](bool, bool) { on_readable(); }),
      timer_(loop, [this] { look_again(); }) {
  poll_.watch(true, false);
}

void NetWatch::on_driver_left() { timer_.start(kPause); }

void NetWatch::on_readable() {
  if (progress_.try_drive()) return;
  poll_.watch(false, false);
  timer_.start(kPause);
}

void NetWatch::look_again() {
  switch (progress_.check_idle()) {
    case Progress::Idle::kDriven: break;  // until on_driver_left()
    case Progress::Idle::kRecent: timer_.start(kPause); break;
    case Progress::Idle::kIdle: poll_.watch(true, false); break;
  }
}

}  // namespace hvd::transport
