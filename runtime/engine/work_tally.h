#pragma once

#include <cstddef>
#include <cstdint>

#include "horovod/session.h"
#include "rendezvous/client/agent_client.h"
#include "runtime/base/deadline.h"

namespace hvd::engine {

// What this rank has done in a session, and for how long it has waited for others: for the launcher's summary. It waits
// as long as an operation is submitted and has not started, which it does when all members of its set have come;
// operations that wait side by side wait once. Plain numbers; the table of operations', under its mutex.
class WorkTally {
 public:
  // `begin`: of the session.
  explicit WorkTally(TimePoint begin) : begin_(begin) {}

  void submitted(TimePoint now) {
    if (unstarted_++ == 0) since_ = now;
  }
  // So many of those, at once.
  void started(std::size_t count, TimePoint now) {
    if (count == 0) return;
    unstarted_ -= count;
    if (unstarted_ == 0) waited_ += now - since_;
  }
  // An operation has ended well. A barrier and a join move nothing, and count only while they wait.
  void ended(const Operation& operation, std::uint64_t bytes) {
    if (operation.op == OpType::kBarrier || operation.op == OpType::kJoin) return;
    ++work_.collectives;
    work_.bytes += bytes;
  }
  rendezvous::RankWork work(TimePoint now) const {
    rendezvous::RankWork work = work_;
    work.waited_us = microseconds(waited_);
    work.session_us = microseconds(now - begin_);
    return work;
  }

 private:
  static std::uint64_t microseconds(SteadyClock::duration span) {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(span).count());
  }

  const TimePoint begin_;
  rendezvous::RankWork work_;
  std::size_t unstarted_ = 0;
  TimePoint since_;  // while there is one
  SteadyClock::duration waited_{};
};

}  // namespace hvd::engine
