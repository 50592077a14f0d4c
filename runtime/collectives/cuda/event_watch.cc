#include "runtime/collectives/cuda/event_watch.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread.h"

namespace hvd::collectives::cuda {

namespace {

void end_with(std::optional<Status>& failed, TimePoint& give_up, const Status& why, TimePoint since) {
  if (failed) return;
  failed = why;
  give_up = since + EventWatch::kGrace;
}

}  // namespace

// In a list that ends with the process, as what is lost looks like a mistake to who searches for leaks.
void leave_for_good(std::shared_ptr<const void> kept) {
  static Mutex mutex;
  static auto* const all = new Owners;
  const MutexLock lock(mutex);
  all->push_back(std::move(kept));
}

EventWatch::EventWatch() : thread_(start_thread("hvd-gpu", [this](const std::stop_token& stop) { run(stop); })) {}

EventWatch::~EventWatch() {
  {
    const std::lock_guard lock(mutex_);
    thread_.request_stop();
    last_grace_ = Deadline::after(kLastGrace);
  }
  changed_.notify_all();
  thread_.join();
  if (kept_.empty()) return;
  HVD_LOG(
      kWarning, "GPU ", std::to_string(kept_.front().event->device().ordinal()),
      " has not come to the end of what it was given: tensors that it may still write to stay in memory for as long "
      "as this process lives");
  leave_for_good(std::make_shared<std::vector<Kept>>(std::move(kept_)));
}

void EventWatch::watch(const void* owner, Wait wait) {
  {
    const std::lock_guard lock(mutex_);
    items_.push_back({owner, std::move(wait)});
    has_new_ = true;
  }
  changed_.notify_all();
}

void EventWatch::keep(EventPtr event, Owners owners) {
  event->give_up();
  {
    const std::lock_guard lock(mutex_);
    kept_.push_back({std::move(event), std::move(owners)});
  }
  changed_.notify_all();
}

void EventWatch::leave(Owners owners) {
  HVD_LOG(kWarning,
          "a GPU's driver records no event behind a collective that failed: its tensors stay in memory for as long as "
          "this process lives");
  leave_for_good(std::make_shared<Owners>(std::move(owners)));
}

void EventWatch::fail(const void* owner, const Status& why, TimePoint since) {
  const std::lock_guard lock(mutex_);
  for (Item& item : items_) {
    if (item.owner == owner) end_with(item.failed, item.give_up, why, since);
  }
}

// Marks what has ended. True when something has.
bool EventWatch::look(std::vector<Item>& items, bool ask_for_trouble) {
  bool any = false;
  for (Item& item : items) {
    const Result<bool> come = item.wait.event->has_come();
    if (!come.is_ok() || come.value()) {
      item.ended = item.failed ? *item.failed : come.status();
    } else if (item.failed && SteadyClock::now() >= item.give_up) {
      item.ended = item.failed;
      item.was_given_up = true;
    } else if (ask_for_trouble && item.wait.trouble) {
      const Status trouble = item.wait.trouble();
      if (!trouble.is_ok()) end_with(item.failed, item.give_up, trouble, SteadyClock::now());
    }
    any = any || item.ended;
  }
  return any;
}

std::vector<EventWatch::Item> EventWatch::take_ended() {
  const auto rest = std::stable_partition(items_.begin(), items_.end(), [](const Item& item) { return !item.ended; });
  std::vector<Item> ended(std::make_move_iterator(rest), std::make_move_iterator(items_.end()));
  items_.erase(rest, items_.end());
  for (Item& item : ended) {
    if (!item.was_given_up) continue;
    item.wait.event->give_up();
    kept_.push_back({item.wait.event, std::move(item.wait.owners)});
  }
  return ended;
}

// An error of the GPU is its end, too: it runs nothing any more.
std::vector<EventWatch::Kept> EventWatch::take_come() {
  const auto is_due = [](const Kept& kept) {
    const Result<bool> come = kept.event->has_come();
    return !come.is_ok() || come.value();
  };
  const auto rest = std::stable_partition(kept_.begin(), kept_.end(), std::not_fn(is_due));
  std::vector<Kept> come(std::make_move_iterator(rest), std::make_move_iterator(kept_.end()));
  kept_.erase(rest, kept_.end());
  return come;
}

void EventWatch::run(const std::stop_token& stop) {
  TimePoint last = SteadyClock::now();
  TimePoint asked = last;
  for (;;) {
    std::vector<Item> ended;
    std::vector<Kept> come;  // let go of without the lock
    {
      std::unique_lock lock(mutex_);
      while (items_.empty() && kept_.empty() && !stop.stop_requested()) changed_.wait(lock);
      if (items_.empty()) {
        if (stop.stop_requested() && (kept_.empty() || last_grace_.expired())) return;
        changed_.wait_for(lock, kKeptPause);
      }
      come = take_come();
      const TimePoint now = SteadyClock::now();
      const bool ask = now - asked >= kTroublePause;
      if (ask) asked = now;
      if (std::exchange(has_new_, false)) last = now;
      if (look(items_, ask)) {
        ended = take_ended();
        last = now;
      } else if (now - last >= kPause) {
        changed_.wait_for(lock, kPause);
      }
    }
    for (Item& item : ended) {  // holding no lock
      item.wait.owners.clear();
      item.wait.trouble = nullptr;  // nothing may end on this thread with the last of it
      item.wait.done(*item.ended);
    }
    if (ended.empty()) std::this_thread::yield();
  }
}

}  // namespace hvd::collectives::cuda
