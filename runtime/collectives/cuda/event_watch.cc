#include "runtime/collectives/cuda/event_watch.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/thread.h"

namespace hvd::collectives::cuda {

namespace {

void end_with(std::optional<Status>& failed, TimePoint& give_up, const Status& why) {
  if (failed) return;
  failed = why;
  give_up = SteadyClock::now() + EventWatch::kGrace;
}

}  // namespace

EventWatch::EventWatch() : thread_(start_thread("hvd-gpu", [this](const std::stop_token& stop) { run(stop); })) {}

EventWatch::~EventWatch() {
  {
    const std::lock_guard lock(mutex_);
    thread_.request_stop();
  }
  changed_.notify_all();
}

void EventWatch::watch(const void* owner, EventPtr event, Done done, Trouble trouble) {
  {
    const std::lock_guard lock(mutex_);
    items_.push_back({owner, std::move(event), std::move(done), std::move(trouble)});
  }
  changed_.notify_all();
}

void EventWatch::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void EventWatch::fail(const void* owner, const Status& why) {
  const std::lock_guard lock(mutex_);
  for (Item& item : items_) {
    if (item.owner == owner) end_with(item.failed, item.give_up, why);
  }
}

// Marks what has ended. True when something has.
bool EventWatch::look(std::vector<Item>& items, bool ask_for_trouble) {
  bool any = false;
  for (Item& item : items) {
    const Result<bool> come = item.event->has_come();
    if (!come.is_ok() || come.value()) {
      item.ended = item.failed ? *item.failed : come.status();
    } else if (item.failed && SteadyClock::now() >= item.give_up) {
      item.ended = item.failed;
    } else if (ask_for_trouble && item.trouble) {
      if (const Status trouble = item.trouble(); !trouble.is_ok()) end_with(item.failed, item.give_up, trouble);
    }
    any = any || item.ended;
  }
  return any;
}

void EventWatch::run(const std::stop_token& stop) {
  TimePoint last = SteadyClock::now();
  TimePoint asked = last;
  for (;;) {
    std::vector<Item> ended;
    std::vector<std::function<void()>> posted;
    {
      std::unique_lock lock(mutex_);
      while (items_.empty() && posted_.empty() && !stop.stop_requested()) changed_.wait(lock);
      if (items_.empty() && posted_.empty()) return;
      posted.swap(posted_);
      const TimePoint now = SteadyClock::now();
      const bool ask = now - asked >= kTroublePause;
      if (ask) asked = now;
      if (look(items_, ask)) {
        const auto rest = std::stable_partition(items_.begin(), items_.end(), [](const Item& i) { return !i.ended; });
        ended.assign(std::make_move_iterator(rest), std::make_move_iterator(items_.end()));
        items_.erase(rest, items_.end());
        last = now;
      } else if (now - last >= kPause) {
        changed_.wait_for(lock, kPause);
      }
    }
    for (const auto& work : posted) work();  // holding no lock, as what ends
    for (Item& item : ended) item.done(*item.ended);
    if (ended.empty()) std::this_thread::yield();
  }
}

}  // namespace hvd::collectives::cuda
