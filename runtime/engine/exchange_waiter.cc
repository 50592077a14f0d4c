#include "runtime/engine/exchange_waiter.h"

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

#include "runtime/base/spinner.h"
#include "runtime/base/thread.h"
#include "runtime/engine/small_exchange.h"

namespace hvd::engine {

void ExchangeWaiter::wait_for(const std::shared_ptr<SmallUse>& use) {
  const bool is_alone = waited_for_.fetch_add(1) == 0;
  if (is_alone && thread_spinner().spin([&] { return use->look(); })) {
    waited_for_.fetch_sub(1);
    return;
  }
  if (leave_to_thread(use)) return;
  waited_for_.fetch_sub(1);
  use->exchange_->give_up(TimePoint::max());  // all go the ordinary way
}

// False: there is no thread to be had.
bool ExchangeWaiter::leave_to_thread(const std::shared_ptr<SmallUse>& use) {
  std::shared_ptr<collectives::ExchangeSlots> sleeps_on;
  {
    const MutexLock lock(mutex_);
    if (is_stopped_) return true;
    if (!thread_.joinable()) {
      try {
        thread_ = start_thread("hvd-exchange", [this](const std::stop_token& stop) { run(stop); });
      } catch (const std::system_error&) {
        return false;
      }
    }
    fresh_.push_back(use);
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
    const auto ended = static_cast<int>(std::erase_if(uses, is_over));
    waited_for_.fetch_sub(ended);
    const auto is_news = [&] { return has_news_.load() || std::ranges::any_of(uses, is_over); };
    if (ended > 0 || uses.empty() || thread_spinner().spin(is_news)) continue;
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

// The bell is of one process set: what others wait for is looked at again soon.
template <typename IsNews>
void ExchangeWaiter::wait_for_news(const Uses& uses, IsNews&& is_news) {
  constexpr Millis kOthers{1};
  const SmallUse& oldest = *uses.front();
  const TimePoint now = SteadyClock::now();
  if (now - oldest.since_ > SmallUse::kPatience) return oldest.exchange_->give_up(now - SmallUse::kPatience);
  const bool has_others = std::ranges::any_of(uses, [&](const auto& use) { return use->slots_ != oldest.slots_; });
  const auto rest = std::chrono::ceil<Millis>(oldest.since_ + SmallUse::kPatience - now) + Millis(1);
  {
    const MutexLock lock(mutex_);
    sleeps_on_ = oldest.slots_;
  }
  oldest.slots_->wait_for_bell(has_others ? kOthers : rest, is_news);
  const MutexLock lock(mutex_);
  sleeps_on_ = nullptr;
}

}  // namespace hvd::engine
