#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "launcher/process/child.h"
#include "rendezvous/protocol/agent_socket.h"
#include "rendezvous/protocol/seat.h"
#include "runtime/base/deadline.h"

namespace hvd::launcher {

using rendezvous::Incarnation;

// As people and programs are told a time.
inline double as_seconds(SteadyClock::duration span) { return std::chrono::duration<double>(span).count(); }

// One process that a job has had.
struct ProcessRecord {
  Incarnation process;
  std::optional<int> rank;  // the last that it had; none: a spare that was never needed
  int local_rank = -1;
  std::string host;
  int pid = 0;
  TimePoint started;
  std::optional<TimePoint> ended = {};
  std::optional<ExitStatus> status = {};  // once it has ended; none then: its host was lost, and nobody knows
  // In all its sessions that have ended; none: no word of any, as of a process that was killed.
  std::optional<rendezvous::RankWork> work = {};
};

// Which processes a job has had, when they ran and how they ended: what --events and the summary tell. Bounded: of
// those that have ended, the first go when there are more than `most`. Owned by the JobDriver; pure.
class ProcessLedger {
 public:
  static constexpr std::size_t kMost = 65536;
  explicit ProcessLedger(std::size_t most = kMost) : most_(most) {}

  const ProcessRecord& add(ProcessRecord record);
  // Of a process that has not ended; else null.
  ProcessRecord* running(Incarnation process);
  // What it did in one more session.
  void add_work(Incarnation process, const rendezvous::RankWork& work);
  // Null when it had ended before, or is not known.
  const ProcessRecord* end(Incarnation process, const std::optional<ExitStatus>& status, TimePoint now);

  const std::map<Incarnation, ProcessRecord>& all() const { return records_; }
  // That were there and have gone.
  std::size_t forgotten() const { return forgotten_; }

 private:
  const std::size_t most_;
  std::map<Incarnation, ProcessRecord> records_;
  std::size_t forgotten_ = 0;
};

}  // namespace hvd::launcher
