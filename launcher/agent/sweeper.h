#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "launcher/process/main_loop.h"
#include "runtime/base/deadline.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// The numeric names in a directory of /proc.
std::vector<int> numbers_in(const std::string& path);
// The children of a process, from /proc. Empty when it is gone.
std::vector<int> children_of(int pid);
// Its children, theirs, and so on; `pid` itself is not in it, nor are those in `spared` and what descends from them. A
// snapshot: processes come and go while it is taken.
std::vector<int> descendants_of(int pid, const std::set<int>& spared = {});

// This process becomes the parent of descendants whose parent dies, so that none escapes by forking twice.
void become_subreaper();
// Reaps the children that ended, but not those in `known`: their owners wait for these. How many are left that have
// not ended is not reported: see descendants_of.
void reap_adopted(const std::set<int>& known);

// Ends every descendant of this process: waits `voluntary`, then SIGTERM, and kTermGrace later SIGKILL, until none is
// left. Owned by the Agent, loop-confined. Knows nothing of ranks: they are descendants like any other.
class Sweeper {
 public:
  static constexpr Millis kTermGrace{2000};
  static constexpr Millis kGiveUp{5000};  // after SIGKILL: a process that the kernel cannot end (stuck in a device)

  // `spared` are left alone, with what descends from them; asked at each look.
  Sweeper(MainLoop& loop, std::function<void()> on_clean, std::function<std::set<int>()> spared);

  // A second start can only make it faster.
  void start(Millis voluntary);
  void kill_now();
  bool active() const { return active_; }
  // A child has ended: perhaps it was the last. Cheap when not active.
  void look_again();

 private:
  enum class Phase { kVoluntary, kTerm, kKill };
  void step();

  std::function<void()> on_clean_;
  std::function<std::set<int>()> spared_;
  loop::Timer timer_;
  bool active_ = false;
  Phase phase_ = Phase::kVoluntary;
  TimePoint phase_end_{};
  std::set<int> terminated_;  // have got their SIGTERM
};

}  // namespace hvd::launcher
