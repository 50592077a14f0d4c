#include "runtime/engine/exchange_waiter.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "runtime/base/spinner.h"
#include "runtime/base/thread.h"
#include "runtime/engine/small_exchange.h"

namespace hvd::engine {

void ExchangeWaiter::begin(const Wait& wait) {
  if (wait.is_alone && thread_spinner().spin([&] { return wait.use->look(); })) return;
  if (!leave_to_thread(wait.use)) wait.use->exchange_->give_up(TimePoint::max());  // all go the ordinary way
}

// False: that cannot be had.
bool ExchangeWaiter::leave_to_thread(const std::shared_ptr<SmallUse>& use) {
  std::shared_ptr<collectives::ExchangeSlots> sleeps_on;
  {
    const MutexLock lock(mutex_);
    if (is_stopped_) return true;
    try {
      if (!thread_.joinable()) thread_ = start_thread("hvd-exchange", [this](const auto& stop) { run(stop); });
      fresh_.push_back(use);
    } catch (const std::exception&) {  // no thread, no memory
      return false;
    }
    has_news_.store(true);
    sleeps_on = sleeps_on_;
  }
  changed_.notify_one();
  if (sleeps_on != nullptr) sleeps_on->ring_own();
  return true;
}

void ExchangeWaiter::stop() {
  std::jthread thread;
  std::shared_ptr<collectives::ExchangeSlots> sleeps_on;
  {
    const MutexLock lock(mutex_);
    is_stopped_ = true;
    thread = std::move(thread_);
    thread.request_stop();
    has_news_.store(true);
    sleeps_on = sleeps_on_;
  }
  changed_.notify_one();
  if (sleeps_on != nullptr) sleeps_on->ring_own();
  if (thread.joinable()) thread.join();
  const MutexLock lock(mutex_);
  fresh_.clear();
}

void ExchangeWaiter::run(const std::stop_token& stop) {
  Uses uses;
  const auto is_over = [](const std::shared_ptr<SmallUse>& use) { return use->look(); };
  while (take_fresh(uses, stop)) {
    const bool have_ended = std::erase_if(uses, is_over) > 0;
    const auto is_news = [&] { return has_news_.load() || std::ranges::any_of(uses, is_over); };
    if (have_ended || uses.empty() || thread_spinner().spin(is_news)) continue;
    wait_for_news(uses, is_news);
  }
}

bool ExchangeWaiter::take_fresh(Uses& uses, const std::stop_token& stop) {
  std::unique_lock lock(mutex_.native());
  while (fresh_.empty() && uses.empty() && !stop.stop_requested()) changed_.wait(lock);
  std::ranges::move(fresh_, std::back_inserter(uses));
  fresh_.clear();
  has_news_.store(false);
  return !stop.stop_requested();
}

// The bell is of one process set, that of the youngest, for the oldest may be late: what others have is looked at soon.
template <typename IsNews>
void ExchangeWaiter::wait_for_news(const Uses& uses, IsNews&& is_news) {
  constexpr Millis kOthers{1};
  const SmallUse& oldest = *uses.front();
  const std::shared_ptr<collectives::ExchangeSlots> slots = uses.back()->slots_;
  const TimePoint now = SteadyClock::now();
  if (now - oldest.since_ > SmallUse::kPatience) return oldest.exchange_->give_up(now - SmallUse::kPatience);
  const bool has_others = std::ranges::any_of(uses, [&](const auto& use) { return use->slots_ != slots; });
  const auto rest = std::chrono::ceil<Millis>(oldest.since_ + SmallUse::kPatience - now) + Millis(1);
  {
    const MutexLock lock(mutex_);
    sleeps_on_ = slots;
  }
  slots->wait_for_bell(has_others ? kOthers : rest, is_news);
  const MutexLock lock(mutex_);
  sleeps_on_ = nullptr;
}

}  // namespace hvd::engine
