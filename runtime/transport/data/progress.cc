#include "runtime/transport/data/progress.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "runtime/base/check.h"

namespace hvd::transport {

namespace {

constexpr int kEventsPerTurn = 32;
constexpr std::chrono::milliseconds kCheckPeriod{1000};

}  // namespace

Progress::Progress(IoHandler& handler)
    : handler_(handler), epoll_(epoll_create1(EPOLL_CLOEXEC)), kick_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_.valid() || !kick_.valid()) throw std::system_error(errno, std::generic_category(), "epoll and eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = this;  // tells the kick from the sockets
  HVD_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, kick_.get(), &event) == 0, "epoll_ctl");
}

void Progress::wait(const std::function<bool()>& done) {
  if (done()) return;
  mutex_.lock();
  while (!done()) {
    if (driving_ || exclusive_waiters_ > 0) {
      mutex_.unlock();
      const bool changed = spin_for_turn(done);
      mutex_.lock();
      if (changed) continue;
      sleepers_.fetch_add(1);
      // Either notify() sees this sleeper, or this thread sees what notify() was about.
      if (!done() && (driving_ || exclusive_waiters_ > 0)) changed_.wait(mutex_);
      sleepers_.fetch_sub(1);
      continue;
    }
    driving_ = true;
    ++turns_;
    mutex_.unlock();
    drive(done);
    mutex_.lock();
    leave();
  }
  mutex_.unlock();
}

// The driver's turn ends: a sleeping waiter takes over, or hvd-net will.
void Progress::leave() {
  driving_ = false;
  if (sleepers_ > 0) changed_.notify_all();
  if (!report_leaving_) return;
  report_leaving_ = false;
  if (on_driver_left_) on_driver_left_();
}

// Another thread drives, perhaps for a moment only. True when it is worth looking again.
bool Progress::spin_for_turn(const std::function<bool()>& done) {
  const auto until = spin_.spin_until();
  do {
    if (done() || (!driving_ && exclusive_waiters_ == 0)) return true;
  } while (Clock::now() < until && spin_.yield());
  return false;
}

void Progress::drive(const std::function<bool()>& done) {
  auto spin_until = spin_.spin_until();
  while (!done() && exclusive_waiters_ == 0) {
    const auto now = Clock::now();
    check_peers(now);
    int handled = 0;
    if (now < spin_until) {
      handled = handle_ready(0);
      if (handled == 0 && !spin_.yield()) spin_until = {};
    } else {
      // An exchange, like the one in kick(): of the two, the later sees what came before the earlier. So either the
      // kick comes, or the change it would tell of is seen here.
      driver_sleeps_.exchange(true);
      handled = handle_ready(done() || exclusive_waiters_ > 0 ? 0 : static_cast<int>(kCheckPeriod.count()));
    }
    if (handled > 0) spin_until = spin_.spin_until();  // one message seldom comes alone
  }
}

void Progress::check_peers(Clock::time_point now) {
  if (now < next_check_) return;
  next_check_ = now + kCheckPeriod;
  handler_.check_liveness();
}

int Progress::handle_ready(int timeout_ms) {
  epoll_event events[kEventsPerTurn];
  const int n = epoll_wait(epoll_.get(), events, kEventsPerTurn, timeout_ms);
  driver_sleeps_.store(false);
  HVD_CHECK(n >= 0 || errno == EINTR, "epoll_wait");
  std::vector<void*> go_on = std::exchange(unfinished_, {});
  const auto handle = [this](void* tag, bool readable, bool writable) {
    if (handler_.on_io(tag, readable, writable)) unfinished_.push_back(tag);
  };
  for (int i = 0; i < n; ++i) {
    if (events[i].data.ptr == this) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(kick_.get(), &count, sizeof(count));
      continue;
    }
    const bool broken = (events[i].events & (EPOLLERR | EPOLLHUP)) != 0;  // the next read or write tells why
    const bool goes_on = std::erase(go_on, events[i].data.ptr) > 0;
    handle(events[i].data.ptr, goes_on || broken || (events[i].events & EPOLLIN) != 0,
           broken || (events[i].events & EPOLLOUT) != 0);
  }
  for (void* const tag : go_on) handle(tag, true, false);
  if (!unfinished_.empty()) signal_kick();
  return std::max(n, 0);
}

void Progress::notify() {
  if (sleepers_.fetch_add(0) > 0) {  // read-modify-write for the same reason as in drive()
    const MutexLock lock(mutex_);
    changed_.notify_all();
  }
  kick();
}

void Progress::kick() {
  if (driver_sleeps_.exchange(false)) signal_kick();
}

void Progress::signal_kick() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(kick_.get(), &one, sizeof(one));
}

void Progress::exclusive(const std::function<void()>& fn) {
  mutex_.lock();
  exclusive_waiters_.fetch_add(1);
  kick();
  while (driving_) {
    sleepers_.fetch_add(1);
    changed_.wait(mutex_);
    sleepers_.fetch_sub(1);
  }
  driving_ = true;
  exclusive_waiters_.fetch_sub(1);
  mutex_.unlock();
  fn();
  mutex_.lock();
  leave();
  mutex_.unlock();
}

bool Progress::try_drive() {
  {
    const MutexLock lock(mutex_);
    if (driving_ || exclusive_waiters_ > 0) return false;
    driving_ = true;
  }
  handle_ready(0);
  const MutexLock lock(mutex_);
  leave();
  return true;
}

Progress::Idle Progress::check_idle() {
  const MutexLock lock(mutex_);
  if (driving_) {
    report_leaving_ = true;
    return Idle::kDriven;
  }
  if (turns_ == seen_turns_) return Idle::kIdle;
  seen_turns_ = turns_;
  return Idle::kRecent;
}

void Progress::set_on_driver_left(std::function<void()> fn) {
  const MutexLock lock(mutex_);
  on_driver_left_ = std::move(fn);
}

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
